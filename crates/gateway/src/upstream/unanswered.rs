//! Calls that failed before their answer. What went wrong with TLS is for people at a shell alone: a request just goes to
//! another endpoint.

use std::error::Error;
use std::io;

/// A call failed before its answer.
#[derive(Debug)]
pub struct Unanswered {
    /// There was nobody to send it to.
    pub is_connect: bool,
    /// Somebody was there, and TLS did not come about.
    pub tls: Option<TlsTrouble>,
}

impl Unanswered {
    pub(super) fn of(is_connect: bool) -> Self {
        Self { is_connect, tls: None }
    }
}

/// Why TLS did not come about, in the words of the library.
#[derive(Debug, PartialEq, Eq)]
pub enum TlsTrouble {
    /// The certificate is not one that we trust.
    Certificate(String),
    Other(String),
}

impl TlsTrouble {
    /// What an error comes from, if it is that.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Some(match error {
                    rustls::Error::InvalidCertificate(_) => Self::Certificate(error.to_string()),
                    _ => Self::Other(error.to_string()),
                });
            }
            // The source of such an error is that of the one within, which would be passed over.
            let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            next = within.map(|within| within as &(dyn Error + 'static)).or_else(|| error.source());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    /// As the connector wraps it: twice.
    fn failed(error: impl Error + Send + Sync + 'static) -> io::Error {
        io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn a_certificate_that_is_not_trusted_is_told_from_other_trouble() {
        let unknown = failed(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let Some(TlsTrouble::Certificate(why)) = TlsTrouble::of(&unknown) else { panic!("it is the certificate") };
        assert!(why.contains("UnknownIssuer"), "{why}");
        let plain = failed(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert!(matches!(TlsTrouble::of(&plain), Some(TlsTrouble::Other(_))));
        let refused = io::Error::other(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert_eq!(TlsTrouble::of(&refused), None);
    }
}
