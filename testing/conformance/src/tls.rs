//! Certificates that live as long as a case: an authority, a server of it, a client of it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A certificate authority of its own, with the files that a driver is pointed to.
#[derive(Debug)]
pub struct Authority {
    files: TempDir,
    root: CertificateDer<'static>,
    server: (CertificateDer<'static>, Vec<u8>),
}

impl Authority {
    /// Makes the authority, a certificate for `localhost`, and one for a client.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "monolock conformance");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let root = params.self_signed(&key).expect("the authority can sign itself");
        let issuer = Issuer::new(params, key);
        let files = tempfile::tempdir().expect("a temporary folder can be made");
        let write = |name: &str, text: String| fs::write(files.path().join(name), text).expect("a file can be written");
        write("ca.pem", root.pem());
        let issue = |name: &str, purpose| {
            let key = KeyPair::generate().expect("a key can be made");
            let mut params = CertificateParams::new([name.to_owned()]).expect("the name is a DNS name");
            params.distinguished_name.push(DnType::CommonName, name);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![purpose];
            params.use_authority_key_identifier_extension = true;
            let certificate = params.signed_by(&key, &issuer).expect("the authority can sign");
            (certificate, key)
        };
        let (client, client_key) = issue("client", ExtendedKeyUsagePurpose::ClientAuth);
        write("client.pem", client.pem());
        write("client.key", client_key.serialize_pem());
        let (server, server_key) = issue("localhost", ExtendedKeyUsagePurpose::ServerAuth);
        let server = (server.der().clone(), server_key.serialize_der());
        Self { root: root.der().clone(), server, files }
    }

    /// The server's side: any client may come.
    pub fn server(&self) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("the provider knows the default versions")
            .with_no_client_auth();
        let (certificate, key) = self.server.clone();
        let key = PrivateKeyDer::try_from(key).expect("it was just made");
        Arc::new(builder.with_single_cert(vec![certificate], key).expect("the key belongs to the certificate"))
    }

    /// The server's side: only a client with a certificate of this authority may come.
    pub fn strict_server(&self) -> Arc<ServerConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).expect("it is a certificate");
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), default_provider().into())
            .build()
            .expect("there is a root");
        let builder = ServerConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("the provider knows the default versions")
            .with_client_cert_verifier(verifier);
        let (certificate, key) = self.server.clone();
        let key = PrivateKeyDer::try_from(key).expect("it was just made");
        Arc::new(builder.with_single_cert(vec![certificate], key).expect("the key belongs to the certificate"))
    }

    /// What a driver is told: it trusts this authority and shows no certificate.
    pub fn options(&self) -> Value {
        json!({"ca": self.path("ca.pem"), "cert": null, "key": null, "server_name": "localhost"})
    }

    /// What a driver is told: it trusts this authority and shows its certificate.
    pub fn mutual_options(&self) -> Value {
        json!({
            "ca": self.path("ca.pem"), "cert": self.path("client.pem"), "key": self.path("client.key"),
            "server_name": "localhost",
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}
