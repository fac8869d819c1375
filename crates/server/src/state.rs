//! What every handler can reach.

use std::sync::Arc;
use std::time::Duration;

use tidegate_gateway::Gateway;
use tidegate_store::Store;

use crate::router::Router;

pub struct App {
    pub gateway: Arc<Gateway>,
    pub store: Arc<Store>,
    pub router: Router,
    pub public_url: String,
    pub body_idle: Duration,
    pub body_total: Duration,
}

impl App {
    pub fn brand(&self) -> String {
        self.gateway.snapshot().settings.brand.clone()
    }
}
