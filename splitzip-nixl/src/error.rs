//! What can go wrong.

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. It can be cloned, since one reason ends everybody who waits.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `libnixl_capi.so` was not found.
    #[error(
        "NIXL is not there: `libnixl_capi.so` was not found; install NIXL (`pip install --no-deps nixl nixl-cu12` brings it), put its folder into LD_LIBRARY_PATH \
         and that of its plugins into NIXL_PLUGIN_DIR"
    )]
    NoLibrary,
    /// Something that NIXL refused.
    #[error("NIXL could not {what}: {reason}")]
    Nixl {
        /// What was tried.
        what: &'static str,
        /// What it says.
        reason: String,
    },
    /// An argument that cannot be.
    #[error("{0}")]
    Argument(String),
    /// The receiver does not take it. Nothing was sent.
    #[error("the receiver refused: {0}")]
    Refused(String),
    /// The other side has failed.
    #[error("the other side failed: {0}")]
    Failed(String),
    /// One of the two sides has given up.
    #[error("the transfer was cancelled: {0}")]
    Cancelled(String),
    /// The other side ended, or cannot be reached.
    #[error("the other side is lost: {0}")]
    PeerLost(String),
    /// Nothing was heard for too long, or it took too long.
    #[error("the time was over while waiting for {0}")]
    Timeout(String),
    /// A frame that was not what was announced, or could not be coded.
    #[error("layer {layer}: {reason}")]
    Frame {
        /// The layer.
        layer: u32,
        /// What the codec says, or what differs.
        reason: String,
    },
}
