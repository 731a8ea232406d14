//! The certificates of a run: an authority, a server and a client, made anew and gone with it.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{error, fs};

use monolock_net::TlsFiles;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

/// What clients need, in memory, and what servers need, in files.
#[derive(Debug)]
pub(crate) struct Certificates {
    directory: TempDir,
    pub(crate) client: Arc<ClientConfig>,
}

impl Certificates {
    pub(crate) fn make() -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let client = make(directory.path()).map_err(io::Error::other)?;
        Ok(Self { directory, client: Arc::new(client) })
    }

    /// Where the files of the run are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// The files that a server of the run is told.
pub(crate) fn tls_files(directory: &Path) -> TlsFiles {
    TlsFiles { certificate: certificate_file(directory), key: key_file(directory), client_ca: None }
}

/// The same, with the authority of the clients.
pub(crate) fn mutual_tls_files(directory: &Path) -> TlsFiles {
    TlsFiles { client_ca: Some(authority_file(directory)), ..tls_files(directory) }
}

/// Writes the server's files, and gives the client's side: it shows its certificate where it is asked for one.
fn make(directory: &Path) -> Result<ClientConfig, Box<dyn error::Error + Send + Sync>> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name = named("monolock-bench authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    fs::write(authority_file(directory), authority.pem())?;

    let server_key = KeyPair::generate()?;
    let server = CertificateParams::new([Ipv4Addr::LOCALHOST.to_string()])?.signed_by(&server_key, &authority)?;
    fs::write(certificate_file(directory), server.pem())?;
    fs::write(key_file(directory), server_key.serialize_pem())?;

    let client_key = KeyPair::generate()?;
    let mut client = CertificateParams::default();
    client.distinguished_name = named("monolock-bench client");
    let client = client.signed_by(&client_key, &authority)?;
    let client_key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(client_key.serialize_der()));

    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![client.der().clone()], client_key)?)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

fn authority_file(directory: &Path) -> PathBuf {
    directory.join("authority.pem")
}

fn certificate_file(directory: &Path) -> PathBuf {
    directory.join("server.pem")
}

fn key_file(directory: &Path) -> PathBuf {
    directory.join("server.key")
}
