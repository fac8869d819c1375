//! TLS on our own listener: the handshake, within its time, with the certificate that holds now.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The first byte of every handshake.
const HANDSHAKE: u8 = 0x16;
/// For somebody who speaks plain http here.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
                       content-length: 47\r\n\r\nThis port speaks https: put https:// in front.\n";

/// What handshakes are made with.
pub struct Tls {
    config: ArcSwap<ServerConfig>,
    patience: Duration,
}

impl Tls {
    pub fn new(config: Arc<ServerConfig>, patience: Duration) -> Self {
        Self { config: ArcSwap::new(config), patience }
    }

    /// From now on another certificate.
    pub fn renew(&self, config: Arc<ServerConfig>) {
        self.config.store(config);
    }

    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        timeout(self.patience, self.shake(stream)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn shake(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            stream.write_all(PLAIN).await?;
            return Err(io::Error::other("it speaks plain http"));
        }
        TlsAcceptor::from(self.config.load_full()).accept(stream).await
    }
}

#[cfg(test)]
mod tests {
    use super::PLAIN;

    #[test]
    fn the_plain_answer_is_as_long_as_it_says() {
        let text = std::str::from_utf8(PLAIN).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
