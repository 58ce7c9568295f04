//! Which tensors are K, which are V, and of which layer: from their names, which every stack makes its own way.

use serde::Serialize;

/// The part of a file that a tensor belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    K,
    V,
    /// Weights, states, K and V in one tensor.
    Other,
}

impl Part {
    pub const ALL: [Part; 3] = [Part::K, Part::V, Part::Other];

    pub fn name(self) -> &'static str {
        match self {
            Part::K => "K",
            Part::V => "V",
            Part::Other => "Other tensors",
        }
    }

    /// What the name says last: `past_key_values.0.key` is a key.
    pub fn of(name: &str) -> Part {
        let part = |word: &str| match word {
            "k" | "key" | "keys" => Some(Part::K),
            "v" | "value" | "values" => Some(Part::V),
            _ => None,
        };
        words(name).rev().find_map(|word| part(&word.to_ascii_lowercase())).unwrap_or(Part::Other)
    }
}

/// The first number in a name.
pub fn layer(name: &str) -> Option<u64> {
    words(name).find_map(|word| word.parse().ok())
}

fn words(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    name.split(|part: char| !part.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_many_stacks() {
        let of = |name| (Part::of(name), layer(name));
        for (name, part, number) in [
            ("layers.0.k", Part::K, Some(0)),
            ("layers.12.v", Part::V, Some(12)),
            ("past_key_values.3.key", Part::K, Some(3)),
            ("past_key_values.3.value", Part::V, Some(3)),
            ("value_cache.7", Part::V, Some(7)),
            ("model.layers.31.self_attn.k_proj.weight", Part::K, Some(31)),
            ("Layer-2/Keys", Part::K, Some(2)),
            ("model.layers.31.mlp.up_proj.weight", Part::Other, Some(31)),
            ("lm_head.weight", Part::Other, None),
            ("kv", Part::Other, None),
            ("", Part::Other, None),
        ] {
            assert_eq!(of(name), (part, number), "{name}");
        }
    }
}
