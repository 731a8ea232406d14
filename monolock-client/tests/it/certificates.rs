//! An authority for tests, and what it certifies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate and its key.
type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Authority {
    pub(crate) fn new() -> Self {
        static AUTHORITIES: AtomicU64 = AtomicU64::new(0);

        let mut params = CertificateParams::new([]).unwrap();
        // A stranger's name is unknown, not merely its key.
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// A server that is this host.
    pub(crate) fn server(&self, host: &str) -> ServerConfig {
        let (chain, key) = self.identity(host);
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap()
    }

    /// A server that is this host, and wants its clients to be certified too.
    pub(crate) fn mutual_server(&self, host: &str) -> ServerConfig {
        let (chain, key) = self.identity(host);
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots())).build().unwrap();
        ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap()
    }

    /// A client that trusts this authority.
    pub(crate) fn client(&self) -> ClientConfig {
        ClientConfig::builder().with_root_certificates(self.roots()).with_no_client_auth()
    }

    /// A client that trusts this authority, and shows its own certificate.
    pub(crate) fn mutual_client(&self, name: &str) -> ClientConfig {
        let (chain, key) = self.identity(name);
        ClientConfig::builder().with_root_certificates(self.roots()).with_client_auth_cert(chain, key).unwrap()
    }

    fn identity(&self, host: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        (vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }
}
