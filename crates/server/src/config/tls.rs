//! `service.tls_certificate` and `service.tls_key`: what our own listener proves itself with.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidegate_core::Secret;

use super::{Source, raw, secret};

const CERTIFICATE: &str = "service.tls_certificate";
const KEY: &str = "service.tls_key";

/// Where certificate and key are: they are read again when they may have been renewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    certificate: String,
    key: String,
}

impl Tls {
    pub(super) fn of(service: &raw::Service) -> anyhow::Result<Option<Self>> {
        match (&service.tls_certificate, &service.tls_key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(Self { certificate: certificate.clone(), key: key.clone() })),
            (Some(_), None) => bail!("{KEY}: is missing; {CERTIFICATE} is of no use without it"),
            (None, Some(_)) => bail!("{CERTIFICATE}: is missing; {KEY} is of no use without it"),
        }
    }

    /// Certificate and key as they are now.
    pub fn read(&self, source: &Source) -> anyhow::Result<Arc<ServerConfig>> {
        let chain = secret::resolve(&self.certificate, source).context(CERTIFICATE)?;
        let key = secret::resolve(&self.key, source).context(KEY)?;
        let chain = certificates(&chain).context(CERTIFICATE)?;
        let key = key.expose(PrivateKeyDer::from_pem_slice);
        let key = key.map_err(|_| anyhow::anyhow!("{KEY}: holds no private key in PEM form"))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => anyhow::anyhow!("{KEY}: is not the key of the certificate"),
            error => anyhow::anyhow!("{CERTIFICATE}: cannot be used: {error}"),
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(pem: &Secret) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let chain = pem.expose(|pem| CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>());
    let chain = chain.map_err(|_| anyhow::anyhow!("holds something that is no certificate in PEM form"))?;
    ensure!(!chain.is_empty(), "holds no certificate in PEM form, such as fullchain.pem");
    Ok(chain)
}
