//! How those commands speak TLS that are clients of the lock server: what their flags say, read from the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::failure::{Failure, USAGE};
use crate::value::{Checked, file};

// How the server is spoken to.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
#[expect(clippy::struct_field_names, reason = "they are the names of the flags")]
pub(crate) struct TlsArgs {
    /// Speak TLS, with a server that one of these authorities signed: PEM
    #[arg(long, env = "MONOLOCK_CLIENT_TLS_CA", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    tls_ca: Option<PathBuf>,

    /// Show this certificate, for mutual TLS: PEM; needs --tls-ca and --tls-key
    #[arg(long, env = "MONOLOCK_CLIENT_TLS_CERT", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key: PEM
    #[arg(long, env = "MONOLOCK_CLIENT_TLS_KEY", hide_env_values = true, value_name = "FILE")]
    #[arg(value_parser = Checked(file))]
    tls_key: Option<PathBuf>,

    /// Whom the server must prove to be; without it the host of --server
    #[arg(long, env = "MONOLOCK_CLIENT_TLS_SERVER_NAME", hide_env_values = true, value_name = "NAME")]
    tls_server_name: Option<String>,
}

/// How TLS is spoken.
#[derive(Debug)]
pub(crate) struct Secured {
    pub(crate) config: ClientConfig,
    /// Whom the server must prove to be.
    pub(crate) name: ServerName<'static>,
    /// Whether this side shows a certificate.
    pub(crate) is_mutual: bool,
}

impl TlsArgs {
    /// Reads the files; nothing is wanted where no flag is given.
    ///
    /// # Errors
    /// A flag that lacks another, or with the status `unusable` a file that is none of its kind.
    pub(crate) fn read(&self, server: &str, unusable: u8) -> Result<Option<Secured>, Failure> {
        let Self { tls_ca, tls_cert, tls_key, tls_server_name } = self;
        let Some(tls_ca) = tls_ca else {
            let alone = [("--tls-cert", tls_cert.is_some()), ("--tls-key", tls_key.is_some())];
            let alone = alone.into_iter().chain([("--tls-server-name", tls_server_name.is_some())]);
            return match alone.into_iter().find(|(_, is_there)| *is_there) {
                Some((flag, _)) => Err(Failure::new(USAGE, format_args!("{flag} needs --tls-ca"))),
                None => Ok(None),
            };
        };
        let wrong = |flag: &str, file: &Path, error: &dyn std::fmt::Display| {
            Failure::new(unusable, format_args!("{flag} {}: {error}", file.display()))
        };
        let certificates = |flag: &str, file: &Path| {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            match read {
                Ok(read) if read.is_empty() => Err(wrong(flag, file, &"there is no certificate in it")),
                read => read.map_err(|error| wrong(flag, file, &error)),
            }
        };
        let mut roots = RootCertStore::empty();
        for root in certificates("--tls-ca", tls_ca)? {
            roots.add(root).map_err(|error| wrong("--tls-ca", tls_ca, &error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has ciphers for the default versions")
            .with_root_certificates(roots);
        let config = match (tls_cert, tls_key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(key)) => {
                let chain = certificates("--tls-cert", certificate)?;
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("--tls-key", key, &error))?;
                builder.with_client_auth_cert(chain, private).map_err(|error| wrong("--tls-key", key, &error))?
            }
            (Some(_), None) => return Err(Failure::new(USAGE, "--tls-cert needs --tls-key")),
            (None, Some(_)) => return Err(Failure::new(USAGE, "--tls-key needs --tls-cert")),
        };
        let name = tls_server_name.as_deref().unwrap_or_else(|| host(server));
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            Failure::new(USAGE, format_args!("{name:?} is no name of a server: give --tls-server-name"))
        })?;
        Ok(Some(Secured { config, name, is_mutual: tls_cert.is_some() }))
    }
}

/// The host of `host:port`, an IPv6 one without its brackets.
fn host(server: &str) -> &str {
    let host = server.rsplit_once(':').map_or(server, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}
