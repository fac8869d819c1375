use super::*;

fn bucket(values: &[(&str, &str)]) -> Result<Bucket, Mistake> {
    let usual =
        [("bucketName", "traces"), ("region", "eu-central-1"), ("prefix", "p"), ("pathTemplate", "{prefix}/{date}")];
    let find = |name: &str| values.iter().chain(&usual).find(|(known, _)| *known == name).map(|(_, value)| *value);
    Bucket::read(&|name: &str| find(name).unwrap_or_default().to_owned())
}

#[test]
fn a_bucket_is_part_of_the_host_or_of_the_path() {
    for (values, url) in [
        (&[][..], "https://traces.s3.eu-central-1.amazonaws.com"),
        (&[("bucketName", "a.b")], "https://s3.eu-central-1.amazonaws.com/a.b"),
        (&[("endpoint", "http://minio:9000/")], "http://minio:9000/traces"),
        (&[("endpoint", "https://R2.Example.com:443")], "https://r2.example.com/traces"),
        (&[("endpoint", "http://h:443/base")], "http://h:443/base/traces"),
    ] {
        assert_eq!(bucket(values).map(|bucket| bucket.url), Ok(url.to_owned()));
    }
    for (name, value) in [
        ("bucketName", "ab"),
        ("bucketName", "a/../b"),
        ("region", ""),
        ("endpoint", "ftp://x"),
        ("endpoint", "https://u@x"),
        ("endpoint", "https://x?y"),
        ("pathTemplate", "{week}"),
        ("pathTemplate", "{date"),
    ] {
        assert_eq!(bucket(&[(name, value)]).err().map(|(member, _)| member), Some(name), "{value}");
    }
}

#[test]
fn folders_are_filled_in_and_lead_nowhere_else() {
    // 2026-01-02T23:59:59.999Z
    let at = Timestamp(1_767_398_399_999);
    for (template, prefix, key, folder) in [
        ("{prefix}/{date}", "p", "k", "p/2026-01-02/"),
        ("{year}/{month}/{day}/{apiKeyName}", "p", "My key, the 2nd!", "2026/01/02/my-key-the-2nd/"),
        ("{apiKeyName}", "", "½", "unnamed/"),
        ("", "p", "k", ""),
        ("/a//../{prefix}/./b/", "x/y z", "k", "a/x/y%20z/b/"),
        ("{prefix}", "größe", "k", "gr%C3%B6%C3%9Fe/"),
    ] {
        let bucket = bucket(&[("pathTemplate", template), ("prefix", prefix)]).unwrap();
        assert_eq!(bucket.folder(at, key), folder);
    }
}
