//! What this process uses and what it may use, as the kernel says it. A few small reads, without allocations.

use std::fs::{File, read_dir};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::process::{Resource as Limited, getrlimit};

use super::level::Share;

/// The limits of the control groups may be changed while we run; it is enough to notice that after a while.
const LIMITS_EVERY: u32 = 40;
/// More than the files hold that are read here.
const LONGEST: usize = 512;

/// Where the kernel tells about this process.
pub struct Machine {
    page_bytes: u64,
    /// The files that hold the limits of our control group and of those around it.
    limit_files: Vec<PathBuf>,
    memory_bytes: Option<u64>,
    looks: u32,
}

impl Default for Machine {
    fn default() -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let page_bytes = rustix::param::page_size() as u64;
        Self { page_bytes, limit_files: limit_files(&groups), memory_bytes: None, looks: 0 }
    }
}

impl Machine {
    /// Memory against what was configured, else against the least of what the control groups and the machine have.
    pub fn memory(&mut self, configured: Option<u64>) -> Share {
        if self.looks.is_multiple_of(LIMITS_EVERY) {
            self.memory_bytes = self.memory_limit();
        }
        self.looks = self.looks.wrapping_add(1);
        let limit = configured.or(self.memory_bytes).unwrap_or(0);
        let pages = read(Path::new("/proc/self/statm"), resident_pages);
        Share::of(pages.unwrap_or(0) * self.page_bytes, limit)
    }

    /// What the last look at the limits found; 0 when nobody says.
    pub fn most_memory(&self) -> u64 {
        self.memory_bytes.unwrap_or(0)
    }

    fn memory_limit(&self) -> Option<u64> {
        let groups = self.limit_files.iter().filter_map(|file| read(file, group_limit));
        groups.chain(read(Path::new("/proc/meminfo"), machine_memory)).min()
    }

    /// Open files and sockets against how many may be open.
    pub fn descriptors(&self) -> Share {
        let Some(most) = getrlimit(Limited::Nofile).current else { return Share(0) };
        // Newer kernels tell the number as the size of the folder; with older ones it must be counted.
        let open = Path::new("/proc/self/fd").metadata().map_or(0, |folder| folder.len());
        let counted = || read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        Share::of(if open > 0 { open } else { counted() }, most)
    }
}

/// What is found in a small file.
fn read<T>(path: &Path, find: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut bytes = [0_u8; LONGEST];
    // The kernel gives files this small in one read.
    let length = File::open(path).ok()?.read(&mut bytes).ok()?;
    let text = bytes[..length].utf8_chunks().next()?.valid();
    find(text)
}

/// The second number of `statm`.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// `max` is no limit.
fn group_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// In bytes.
fn machine_memory(meminfo: &str) -> Option<u64> {
    let kilobytes = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix(" kB")?;
    kilobytes.parse::<u64>().ok()?.checked_mul(1024)
}

/// The files with the limits of the groups that `/proc/self/cgroup` names, in version 2 and version 1. A limit of a group
/// binds the groups in it. In a container the paths named may be the host's; then the folder at the top is ours.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let (top, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| Path::new(top).join(group).join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_looked_for_in_the_group_and_in_all_around_it() {
        let files = |groups: &str| -> Vec<String> {
            limit_files(groups).into_iter().map(|file| file.to_str().unwrap().replace("/sys/fs/cgroup", "")).collect()
        };
        assert_eq!(
            files("0::/system.slice/tidegate.service\n"),
            ["/system.slice/tidegate.service/memory.max", "/system.slice/memory.max", "/memory.max"]
        );
        assert_eq!(files("0::/\n"), ["/memory.max"]);
        assert_eq!(
            files("3:cpu,cpuacct:/a\n2:memory:/docker/x:y\n1:name=systemd:/\n"),
            ["docker/x:y/", "docker/", ""].map(|group| format!("/memory/{group}memory.limit_in_bytes"))
        );
        assert_eq!(files("nonsense\n"), [""; 0]);
    }

    #[test]
    fn the_kernels_words_are_read_as_they_are_written() {
        assert_eq!(resident_pages("765 440 411 5 0 123 0\n"), Some(440));
        assert_eq!((group_limit("max\n"), group_limit("536870912\n")), (None, Some(512 << 20)));
        let meminfo = "MemTotal:       16303428 kB\nMemFree:          523428 kB\n";
        assert_eq!(machine_memory(meminfo), Some(16_303_428 * 1024));
        assert_eq!((resident_pages(""), machine_memory("")), (None, None));
    }

    #[test]
    fn this_process_uses_something_of_everything() {
        let mut machine = Machine::default();
        // A process has at least a page, and less than the whole machine.
        let (all, little) = (machine.memory(None), machine.memory(Some(1)));
        assert!(all < Share(1_000) && little > Share(1_000), "{all:?} {little:?}");
        let open: Vec<File> = (0..64).map(|_| File::open("/proc/self/statm").unwrap()).collect();
        let most = getrlimit(Limited::Nofile).current.unwrap();
        assert!(machine.descriptors() >= Share::of(open.len() as u64, most));
    }
}
