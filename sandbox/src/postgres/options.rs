//! What a private server can be told.

use std::path::PathBuf;

/// How to start a private server. The default suits a demo: new data, removed at the end.
///
/// ```
/// use longhaul_sandbox::postgres::Options;
///
/// let options = Options::default().max_connections(50).setting("track_commit_timestamp", "on");
/// # let _ = options;
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) data_dir: Option<PathBuf>,
    pub(super) look_in: Option<Vec<PathBuf>>,
    pub(super) settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { data_dir: None, look_in: None, settings: Vec::new() }
            .max_connections(200)
            .setting("shared_buffers", "256MB")
    }
}

impl Options {
    /// Keeps the data in this folder and leaves it there at the end; the server is then stopped with a checkpoint. The
    /// folder is made if it is missing, and a folder that already holds a data directory of the same major version is
    /// used as it is.
    ///
    /// When this process is root, an empty folder is handed to the account the server runs as, which must be able to
    /// reach it.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Looks for `postgres` and `initdb` in these folders only, instead of `PATH` and the usual places.
    #[must_use]
    pub fn look_in<P: Into<PathBuf>>(mut self, bin_dirs: impl IntoIterator<Item = P>) -> Self {
        self.look_in = Some(bin_dirs.into_iter().map(Into::into).collect());
        self
    }

    /// One server setting, as in `postgresql.conf`. A later one replaces an earlier one of the same name.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The most connections the server takes (default 200).
    #[must_use]
    pub fn max_connections(self, count: u32) -> Self {
        self.setting("max_connections", &count.to_string())
    }
}
