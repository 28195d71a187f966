//! Verification of the server's certificate.

use std::path::Path;
use std::sync::Arc;

use convoke_core::Invalid;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::{Address, Trust};

pub(super) fn connector(field: &str, address: &Address) -> Result<MakeRustlsConnect, Invalid> {
    let provider = Arc::new(ring::default_provider());
    let refused = |message: String| Invalid::new(field, message);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?;
    let chain = match address.trust {
        Trust::Anyone => None,
        Trust::Chain | Trust::Full => {
            let roots = Arc::new(roots(field, address.root_cert.as_deref())?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            Some(verifier.map_err(|error| refused(format!("sslrootcert: {error}")))?)
        }
    };
    let config = match (chain, address.trust) {
        (Some(chain), Trust::Full) => builder.with_webpki_verifier(chain).with_no_client_auth(),
        (chain, _) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Nameless { chain, provider }))
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

/// Returns the trusted certificates: those in a file, or the public authorities.
fn roots(field: &str, file: Option<&Path>) -> Result<RootCertStore, Invalid> {
    let Some(path) = file else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let refused = |error: String| Invalid::new(field, format!("sslrootcert: {} {error}", path.display()));
    let mut store = RootCertStore::empty();
    let found = CertificateDer::pem_file_iter(path).map_err(|error| refused(format!("cannot be read: {error}")))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| refused(format!("has no certificate in PEM: {error}")))?;
        store.add(certificate).map_err(|error| refused(format!("has an invalid certificate: {error}")))?;
    }
    if store.is_empty() { Err(refused("has no certificate in PEM".into())) } else { Ok(store) }
}

/// For `require` and `verify-ca`: the name is not checked, and without a chain to check only the handshake is.
#[derive(Debug)]
struct Nameless {
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Nameless {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is checked last: the chain was good.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
