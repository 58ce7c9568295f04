//! A mapped file that somebody makes shorter ends the process with SIGBUS: the pages behind its new end are gone. It ends with a message instead, and
//! without the file that was being written.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

const MESSAGE: &str = "error: an input was made shorter while it was read, so nothing was written; run again when nothing writes to it\n";
const LEFT: &str = "what is left of the new directory can be removed: ";

/// The file that is being written, and the new directory that it is for, if there is one. Never freed: the handler may be looking at them.
static TEMPORARY: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
static DIRECTORY: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// Catches the signal.
///
/// # Errors
/// What the system says.
pub fn catch() -> io::Result<()> {
    // SAFETY: the handler makes system calls that a handler may make, reads two pointers, and ends the process. It takes no lock and no memory.
    unsafe { signal_hook::low_level::register(signal_hook::consts::SIGBUS, end) }.map(|_| ())
}

/// Says which file is being written.
pub fn temporary(path: Option<&Path>) {
    TEMPORARY.store(leaked(path), Ordering::Release);
}

/// Says which directory is being filled.
pub fn directory(path: Option<&Path>) {
    DIRECTORY.store(leaked(path), Ordering::Release);
}

/// Some bytes for every file that is written, until the process ends.
fn leaked(path: Option<&Path>) -> *mut c_char {
    let path = path.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    path.map_or(null_mut(), CString::into_raw)
}

fn end() {
    let stderr = rustix::stdio::stderr();
    let say = |bytes: &[u8]| {
        let _ = rustix::io::write(stderr, bytes);
    };
    let named = |of: &AtomicPtr<c_char>| {
        let path = of.load(Ordering::Acquire);
        // SAFETY: a pointer that is not null is a string of `leaked`, which nobody frees.
        (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })
    };
    if let Some(path) = named(&TEMPORARY) {
        let _ = rustix::fs::unlink(path);
    }
    say(MESSAGE.as_bytes());
    if let Some(path) = named(&DIRECTORY) {
        say(LEFT.as_bytes());
        say(path.to_bytes());
        say(b"\n");
    }
    signal_hook::low_level::exit(1);
}
