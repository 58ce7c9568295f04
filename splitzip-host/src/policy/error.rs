//! What can be wrong with the numbers of a policy.

/// Numbers, names and files that no plan can be made with.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A number outside of what it can be.
    #[error("{what} is {given}; it must be {allowed}")]
    Number {
        /// What it says.
        what: &'static str,
        /// What was given.
        given: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// A link that is neither a known name nor a speed.
    #[error("there is no link {given:?}; it must be one of {allowed}, or a speed in GB/s, as in 12.5")]
    Link {
        /// What was given.
        given: String,
        /// The names, with commas.
        allowed: String,
    },
    /// A file that is not what `splitzip bench --json` writes.
    #[error("these are no measured rates: {reason}; write them with `splitzip bench --json`")]
    Rates {
        /// What is wrong.
        reason: String,
    },
    /// A device or dtype that was not measured.
    #[error("there are no rates of {what}; there are those of {available}")]
    NotMeasured {
        /// What was asked for.
        what: String,
        /// What there is, with commas.
        available: String,
    },
}

/// A number that is finite and above 0.
pub(super) fn positive(what: &'static str, given: f64) -> Result<f64, PolicyError> {
    let fits = given.is_finite() && given > 0.0;
    if fits { Ok(given) } else { Err(PolicyError::Number { what, given, allowed: "finite and above 0" }) }
}

/// A number that is finite and not below 0.
pub(super) fn not_negative(what: &'static str, given: f64) -> Result<f64, PolicyError> {
    let fits = given.is_finite() && given >= 0.0;
    if fits { Ok(given) } else { Err(PolicyError::Number { what, given, allowed: "finite and not below 0" }) }
}
