//! Requests without a pause, from several clients at once, of which none may fail.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tokio::task::JoinSet;

use super::gate::INFERENCE_KEY;
use super::http::{Ask, Reply};

pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    clients: JoinSet<()>,
}

impl Load {
    /// `text` is what each request says, asked for when it is made.
    pub fn start(
        address: SocketAddr,
        clients: usize,
        model: &'static str,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> Self {
        let (stop, answered, text) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default(), Arc::new(text));
        let mut set = JoinSet::new();
        for _ in 0..clients {
            let (stop, answered, text) = (stop.clone(), answered.clone(), text.clone());
            set.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let reply = say(address, model, &text()).await;
                    assert_eq!(reply.status, 200, "{}", reply.body_text());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Self { stop, answered, clients: set }
    }

    /// How many requests have been answered so far.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }

    /// How many there were in the end.
    pub async fn stop(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.clients.join_all().await;
        self.answered.load(Ordering::SeqCst)
    }
}

/// One message with the inference key.
pub async fn say(address: SocketAddr, model: &str, text: &str) -> Reply {
    let body = json!({"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": text}]});
    Ask::new(address, "POST", "/v1/messages").key(INFERENCE_KEY).json(body.to_string()).send().await
}
