//! The certificates of a run: an authority, a server and a client, made anew and gone with it.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{error, fs};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
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

    pub(crate) fn authority_file(&self) -> PathBuf {
        authority_file(self.directory())
    }

    pub(crate) fn certificate_file(&self) -> PathBuf {
        certificate_file(self.directory())
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        key_file(self.directory())
    }

    pub(crate) fn client_certificate_file(&self) -> PathBuf {
        client_certificate_file(self.directory())
    }

    pub(crate) fn client_key_file(&self) -> PathBuf {
        client_key_file(self.directory())
    }
}

/// What a client needs that shows no certificate, from the authority's file.
pub(crate) fn anonymous_client(authority: &Path) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority).map_err(io::Error::other)?;
    roots.add(certificate).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(builder.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth())
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
    fs::write(client_certificate_file(directory), client.pem())?;
    fs::write(client_key_file(directory), client_key.serialize_pem())?;
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

fn client_certificate_file(directory: &Path) -> PathBuf {
    directory.join("client.pem")
}

fn client_key_file(directory: &Path) -> PathBuf {
    directory.join("client.key")
}
