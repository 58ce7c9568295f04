//! A mapped file that somebody makes shorter ends the process with SIGBUS: the pages behind its new end are gone. It ends with a message instead, and
//! without the file that was being written.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

const MESSAGE: &str = "error: an input was made shorter while it was read, so nothing was written; run again when nothing writes to it\n";
const LEFT: &str = "what is left of the new directory can be removed: ";

/// The file that is being written, and the new directory that it is for, if there is one. Never freed: the handler may be looking at them.
static TEMPORARY: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
static DIRECTORY: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
/// Has one thread come to the handler? Others that do so wait there for its end.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Catches the signal. Not in a chain: the handler that Rust has for it takes every fault that is no overflow of a stack for the last one, and gives the
/// signal back to the system, which then ends the process without a word when a second thread has its fault.
///
/// # Errors
/// What the system says.
pub fn catch() -> io::Result<()> {
    // SAFETY: zeros are an action without flags and an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = end as extern "C" fn(libc::c_int) as libc::sighandler_t;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the handler makes system calls that a handler may make, reads two pointers, and ends the process. It takes no lock and no memory.
    match unsafe { libc::sigaction(libc::SIGBUS, &action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
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

extern "C" fn end(_: libc::c_int) {
    if ENDS.swap(true, Ordering::AcqRel) {
        loop {
            // SAFETY: a handler may wait.
            unsafe { libc::pause() };
        }
    }
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
    // SAFETY: ends the process, without what is to be done at its end.
    unsafe { libc::_exit(1) }
}
