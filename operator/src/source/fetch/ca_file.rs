//! The CA bundle of the whole installation, in a file that an administrator names.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::time::Instant;

/// Maximum size of the file in bytes: that of a ConfigMap.
const FILE_MAX: usize = 1 << 20;
/// Time after which the file is read again. The kubelet writes a changed ConfigMap into the pod.
const CHECK: Duration = Duration::from_secs(60);

/// A file with certificates in PEM that the fetcher trusts besides the public CAs, for every server.
#[derive(Debug)]
pub struct CaFile {
    path: PathBuf,
    read: Mutex<(Arc<[u8]>, Instant)>,
}

/// Error: the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaFileError {
    /// The file cannot be read.
    #[error(
        "CA bundle {path} cannot be read: {problem}; check the file, in the chart the ConfigMap and the key of caBundle"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Cause.
        problem: io::Error,
    },
    /// The file is too large.
    #[error(
        "CA bundle {0} has more than 1,048,576 bytes; write only the CA certificates that sign the servers' certificates"
    )]
    TooLarge(PathBuf),
    /// The file holds no certificate, or one that is not valid.
    #[error("CA bundle {0} has no certificates, or text that is not one; write one or more CA certificates in PEM")]
    NoCertificates(PathBuf),
}

impl CaFile {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, is too large, or holds no valid certificates in PEM.
    pub fn open(path: &Path) -> Result<Self, CaFileError> {
        let content = load(path)?;
        Ok(Self { path: path.to_owned(), read: Mutex::new((content, Instant::now())) })
    }

    /// Returns the certificates in PEM. A changed file is in use within a minute. If it cannot be used any more, the
    /// previous certificates stay, and the log says why.
    pub(super) async fn certificates(&self) -> Arc<[u8]> {
        {
            let mut read = self.read.lock();
            let now = Instant::now();
            if now.saturating_duration_since(read.1) < CHECK {
                return Arc::clone(&read.0);
            }
            // Only this caller reads the file; others use the previous certificates meanwhile.
            read.1 = now;
        }
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || load(&path)).await {
            Ok(Ok(content)) => self.read.lock().0 = content,
            Ok(Err(error)) => tracing::warn!(%error, "the changed CA bundle is not used: the previous one stays"),
            Err(error) => tracing::warn!(%error, "the CA bundle was not read: the previous one stays"),
        }
        Arc::clone(&self.read.lock().0)
    }
}

fn load(path: &Path) -> Result<Arc<[u8]>, CaFileError> {
    let unreadable = |problem| CaFileError::Unreadable { path: path.to_owned(), problem };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut content = Vec::new();
    file.take(FILE_MAX as u64 + 1).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() > FILE_MAX {
        return Err(CaFileError::TooLarge(path.to_owned()));
    }
    let mut roots = RootCertStore::empty();
    let all_valid = CertificateDer::pem_slice_iter(&content).all(|read| read.is_ok_and(|der| roots.add(der).is_ok()));
    if !all_valid || roots.is_empty() {
        return Err(CaFileError::NoCertificates(path.to_owned()));
    }
    Ok(content.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is removed with this value.
    struct File(PathBuf);

    impl Drop for File {
        fn drop(&mut self) {
            let _a_file_that_stays_is_no_failure = std::fs::remove_file(&self.0);
        }
    }

    fn file(content: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("remora-ca-{:016x}", fastrand::u64(..)));
        std::fs::write(&path, content).unwrap();
        File(path)
    }

    fn authority() -> String {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn unusable_file_is_refused_with_advice() {
        let broken = "-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n";
        for (content, advice) in [
            (String::new(), "has no certificates"),
            ("no PEM\n".to_owned(), "has no certificates"),
            (authority() + broken, "or text that is not one"),
            (authority().repeat(FILE_MAX / 200), "more than 1,048,576 bytes"),
        ] {
            let file = file(content.as_bytes());
            let error = CaFile::open(&file.0).unwrap_err().to_string();
            assert!(error.contains(advice) && error.contains(&*file.0.to_string_lossy()), "{error}");
        }
        let missing = CaFile::open(Path::new("/nonexistent/ca.crt")).unwrap_err().to_string();
        assert!(missing.contains("/nonexistent/ca.crt cannot be read: No such file"), "{missing}");
    }

    #[tokio::test(start_paused = true)]
    async fn changed_file_is_used_after_a_minute_and_unusable_one_is_not() {
        let (first, second) = (authority(), authority());
        let file = file(first.as_bytes());
        let opened = CaFile::open(&file.0).unwrap();
        let used = async || String::from_utf8(opened.certificates().await.to_vec()).unwrap();
        std::fs::write(&file.0, &second).unwrap();
        assert_eq!(used().await, first);
        tokio::time::advance(CHECK).await;
        assert_eq!(used().await, second);
        std::fs::write(&file.0, "").unwrap();
        tokio::time::advance(CHECK).await;
        assert_eq!(used().await, second);
    }
}
