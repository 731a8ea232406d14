//! TLS as the operator set it up: files to a configuration of rustls, a client's certificate to its identity.
//!
//! Sessions are not resumed: a resumed one would keep an identity that the present client CA may refuse, and a lock's
//! connection lives long.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The PEM files of a server's TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and the chain behind it, the server's own first.
    pub certificate: PathBuf,
    /// The certificate's private key: PKCS#8, SEC1 or PKCS#1; Ed25519, ECDSA or RSA.
    pub key: PathBuf,
    /// Where it is set, clients must show a certificate that one of these signed.
    pub client_ca: Option<PathBuf>,
}

/// Which file of [`TlsFiles`] is wrong, and how.
#[derive(Debug)]
pub struct TlsError {
    role: Role,
    file: PathBuf,
    problem: Problem,
}

/// What a file is for.
#[derive(Clone, Copy, Debug)]
enum Role {
    Certificate,
    Key,
    ClientCa,
}

#[derive(Debug)]
enum Problem {
    Unreadable(io::Error),
    NotPem(rustls::pki_types::pem::Error),
    NoCertificate,
    NoKey,
    DoesNotFit(PathBuf),
    Rejected(String),
}

impl TlsFiles {
    /// Reads the files. TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// The file that cannot be read or is not what it should be; a key that does not fit its certificate.
    pub(crate) fn load(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let Self { certificate, key, client_ca } = self;
        let chain = read_certificates(Role::Certificate, certificate)?;
        let private_key = read_key(key)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::rejected(Role::Certificate, certificate, &error))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(client_ca) => {
                let mut roots = RootCertStore::empty();
                for root in read_certificates(Role::ClientCa, client_ca)? {
                    roots.add(root).map_err(|error| TlsError::rejected(Role::ClientCa, client_ca, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| TlsError::rejected(Role::ClientCa, client_ca, &error))?,
                )
            }
        };
        let mut config = builder.with_single_cert(chain, private_key).map_err(|error| {
            if matches!(error, rustls::Error::InconsistentKeys(_)) {
                TlsError::new(Role::Key, key, Problem::DoesNotFit(certificate.clone()))
            } else {
                TlsError::rejected(Role::Key, key, &error)
            }
        })?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// Who a client is by its certificate: the first URI among its alternative names, else the first DNS name, else its
/// common name, else nobody. Nobody, too, by alternative names of which one cannot be read: the next best name might be
/// another's.
pub(crate) fn identity(certificate: &CertificateDer<'_>) -> Arc<str> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Arc::default() };
    let Ok(names) = certificate.subject_alternative_name() else { return Arc::default() };
    let names = names.map_or(&[][..], |names| &names.value.general_names);
    if names.iter().any(|name| matches!(name, GeneralName::Invalid(..))) {
        return Arc::default();
    }
    let uri = names.iter().find_map(|name| if let GeneralName::URI(uri) = name { Some(*uri) } else { None });
    let dns = || names.iter().find_map(|name| if let GeneralName::DNSName(dns) = name { Some(*dns) } else { None });
    let common_name = || certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
    uri.or_else(dns).or_else(common_name).map(Arc::from).unwrap_or_default()
}

impl TlsError {
    fn new(role: Role, file: &Path, problem: Problem) -> Self {
        Self { role, file: file.to_owned(), problem }
    }

    fn rejected(role: Role, file: &Path, error: &impl fmt::Display) -> Self {
        Self::new(role, file, Problem::Rejected(error.to_string()))
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Certificate => "certificate",
            Role::Key => "key",
            Role::ClientCa => "client CA",
        };
        write!(f, "{role} {}: ", self.file.display())?;
        match &self.problem {
            Problem::Unreadable(error) => write!(f, "{error}"),
            Problem::NotPem(error) => write!(f, "not PEM: {error}"),
            Problem::NoCertificate => f.write_str("there is no certificate in it"),
            Problem::NoKey => f.write_str("there is no private key in it"),
            Problem::DoesNotFit(certificate) => write!(f, "the key is not that of {}", certificate.display()),
            Problem::Rejected(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Unreadable(error) => Some(error),
            Problem::NotPem(error) => Some(error),
            Problem::NoCertificate | Problem::NoKey | Problem::DoesNotFit(_) | Problem::Rejected(_) => None,
        }
    }
}

fn read_certificates(role: Role, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(role, file)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::new(role, file, Problem::NotPem(error)))?;
    if certificates.is_empty() {
        return Err(TlsError::new(role, file, Problem::NoCertificate));
    }
    Ok(certificates)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(Role::Key, file)?).map_err(|error| {
        let is_empty = matches!(error, rustls::pki_types::pem::Error::NoItemsFound);
        TlsError::new(Role::Key, file, if is_empty { Problem::NoKey } else { Problem::NotPem(error) })
    })
}

fn read(role: Role, file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|error| TlsError::new(role, file, Problem::Unreadable(error)))
}
