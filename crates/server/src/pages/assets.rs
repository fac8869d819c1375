//! What pages load from this site: compiled in, so that there is nothing to install and nothing to fetch elsewhere.

use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue};

use crate::api::account::Answering;
use crate::router::{Call, plain};

pub fn style(_: Call) -> Answering {
    asset("text/css; charset=utf-8", include_str!("../../assets/page.css"))
}

pub fn icon(_: Call) -> Answering {
    asset("image/svg+xml", include_str!("../../assets/icon.svg"))
}

pub fn copy(_: Call) -> Answering {
    asset("text/javascript; charset=utf-8", include_str!("../../assets/copy.js"))
}

pub fn board(_: Call) -> Answering {
    asset("text/css; charset=utf-8", include_str!("../../assets/dashboard.css"))
}

pub fn live(_: Call) -> Answering {
    asset("text/javascript; charset=utf-8", include_str!("../../assets/dashboard.js"))
}

pub fn playground(_: Call) -> Answering {
    asset("text/javascript; charset=utf-8", include_str!("../../assets/playground.js"))
}

fn asset(kind: &'static str, text: &'static str) -> Answering {
    Box::pin(async move {
        let mut answer = plain(StatusCode::OK, kind, text);
        answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
        Ok(answer)
    })
}
