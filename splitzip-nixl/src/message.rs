//! What the two sides say to each other, as bytes: `docs/wire.md`, and the same as `splitzip.transfer` in Python.

use crate::{Error, Result};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde::{Deserialize, Serialize};
use splitzip_host::{Flags, FrameSpec, TensorSpec};

const MAGIC: &[u8; 4] = b"SPZT";
const VERSION: u8 = 1;
const HEADER: usize = 32;

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Hello = 1,
    Welcome,
    Refused,
    Start,
    Accept,
    Credit,
    Landed,
    Done,
    Failed,
    Cancelled,
    Alive,
    Bye,
}

impl Kind {
    const ALL: [Kind; 12] = [
        Kind::Hello,
        Kind::Welcome,
        Kind::Refused,
        Kind::Start,
        Kind::Accept,
        Kind::Credit,
        Kind::Landed,
        Kind::Done,
        Kind::Failed,
        Kind::Cancelled,
        Kind::Alive,
        Kind::Bye,
    ];
}

/// From which side to which, about which transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub kind: Kind,
    pub to: u64,
    pub sender: u64,
    pub transfer: u64,
    pub body: Vec<u8>,
}

impl Message {
    pub fn pack(&self) -> Vec<u8> {
        let mut data = Vec::with_capacity(HEADER + self.body.len());
        data.extend_from_slice(MAGIC);
        data.extend_from_slice(&[VERSION, self.kind as u8, 0, 0]);
        for number in [self.to, self.sender, self.transfer] {
            data.extend_from_slice(&number.to_le_bytes());
        }
        data.extend_from_slice(&self.body);
        data
    }

    /// `None` for what is no message of this version.
    pub fn unpack(data: &[u8]) -> Option<Message> {
        let (header, body) = data.split_at_checked(HEADER)?;
        if header[..5] != [MAGIC.as_slice(), &[VERSION]].concat() || header[6..8] != [0, 0] {
            return None;
        }
        let kind = Kind::ALL.into_iter().find(|&kind| kind as u8 == header[5])?;
        Some(Message {
            kind,
            to: u64_at(header, 8)?,
            sender: u64_at(header, 16)?,
            transfer: u64_at(header, 24)?,
            body: body.to_vec(),
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

/// A frame that is complete in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Landed {
    pub layer: u32,
    pub credit: Credit,
    pub bytes: u64,
}

impl Landed {
    pub fn pack(self) -> Vec<u8> {
        let words = [self.layer, self.credit.slot, self.credit.generation, 0];
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend_from_slice(&self.bytes.to_le_bytes());
        body
    }

    pub fn unpack(body: &[u8]) -> Option<Landed> {
        if body.len() != 24 || u32_at(body, 12)? != 0 {
            return None;
        }
        let credit = Credit { slot: u32_at(body, 4)?, generation: u32_at(body, 8)? };
        Some(Landed { layer: u32_at(body, 0)?, credit, bytes: u64_at(body, 16)? })
    }
}

/// A slot that may be written to. Whoever writes says the same generation again, so that nothing old passes for something new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Credit {
    pub slot: u32,
    pub generation: u32,
}

pub(crate) fn pack_credits(credits: &[Credit]) -> Vec<u8> {
    credits.iter().flat_map(|credit| [credit.slot, credit.generation]).flat_map(u32::to_le_bytes).collect()
}

pub(crate) fn unpack_credits(body: &[u8]) -> Vec<Credit> {
    let credit = |pair: &[u8]| Some(Credit { slot: u32_at(pair, 0)?, generation: u32_at(pair, 4)? });
    body.chunks_exact(8).filter_map(credit).collect()
}

/// Where a receiver is: `(address, bytes, device)` for every slot.
#[derive(Serialize, Deserialize)]
pub(crate) struct Address {
    splitzip: u8,
    pub channel: u64,
    pub engine: String,
    metadata: String,
    pub slots: Vec<(u64, u64, Option<u64>)>,
}

impl Address {
    pub fn new(
        channel: u64,
        engine: String,
        metadata: &[u8],
        slots: Vec<(u64, u64, Option<u64>)>,
    ) -> Address {
        Address { splitzip: VERSION, channel, engine, metadata: BASE64_STANDARD.encode(metadata), slots }
    }

    pub fn pack(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub fn unpack(text: &str) -> Result<Address> {
        let refuse = |reason: String| {
            Error::Argument(format!(
                "this is no address of a receiver ({reason}); give what Receiver::address says, as it is"
            ))
        };
        let address: Address = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
        if address.splitzip != VERSION {
            return Err(refuse(format!("version {}, and this side speaks {VERSION}", address.splitzip)));
        }
        Ok(address)
    }

    pub fn metadata(&self) -> Result<Vec<u8>> {
        BASE64_STANDARD
            .decode(&self.metadata)
            .map_err(|error| Error::Argument(format!("the metadata of the receiver are damaged: {error}")))
    }
}

type Tensor = (String, u64, String, String, String, Vec<u64>);

/// What a transfer will bring, as it is announced.
#[derive(Serialize, Deserialize)]
struct Plan {
    /// Forms that differ: tensors, checksums, arrival, layout id.
    specs: Vec<(Vec<Tensor>, String, bool, u64)>,
    /// For each layer the number of its form.
    layers: Vec<usize>,
}

pub(crate) fn pack_plan(layers: &[FrameSpec]) -> Vec<u8> {
    let mut forms: Vec<&FrameSpec> = Vec::new();
    let mut numbers = Vec::new();
    for spec in layers {
        let known = forms.iter().position(|&form| form == spec);
        numbers.push(known.unwrap_or_else(|| {
            forms.push(spec);
            forms.len() - 1
        }));
    }
    let specs = forms.iter().map(|form| {
        let tensors = form.tensors.iter().map(|tensor| {
            let names = (tensor.dtype.name(), tensor.scheme.name(), tensor.bases.name());
            (
                tensor.name.clone(),
                tensor.id,
                names.0.into(),
                names.1.into(),
                names.2.into(),
                tensor.shape.clone(),
            )
        });
        let checksums = match (form.flags.tensor_checksums, form.flags.chunk_checksums) {
            (false, false) => "none",
            (true, false) => "tensor",
            (false, true) => "chunk",
            (true, true) => "both",
        };
        (tensors.collect(), checksums.into(), form.flags.arrival, form.layout_id)
    });
    serde_json::to_vec(&Plan { specs: specs.collect(), layers: numbers }).unwrap_or_default()
}

/// One description for each layer; says why where it cannot be read.
pub(crate) fn unpack_plan(body: &[u8]) -> Result<Vec<FrameSpec>, String> {
    let plan: Plan = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut forms = Vec::new();
    for (tensors, checksums, arrival, layout_id) in plan.specs {
        let read =
            |(name, id, dtype, scheme, bases, shape): Tensor| -> Result<TensorSpec, splitzip_host::Error> {
                let tensor = TensorSpec::new(&name, dtype.parse()?, scheme.parse()?, &shape);
                Ok(tensor.with_id(id).with_bases(bases.parse()?))
            };
        let tensors: Result<Vec<_>, _> = tensors.into_iter().map(read).collect();
        let (tensor_checksums, chunk_checksums) = match checksums.as_str() {
            "none" => (false, false),
            "tensor" => (true, false),
            "chunk" => (false, true),
            "both" => (true, true),
            other => return Err(format!("there are no checksums {other:?}")),
        };
        let flags = Flags { arrival, packed: false, tensor_checksums, chunk_checksums };
        let spec =
            FrameSpec { layout_id, ..FrameSpec::new(tensors.map_err(|error| error.to_string())?, flags) };
        spec.layout().map_err(|error| error.to_string())?;
        forms.push(spec);
    }
    let layers = plan.layers.iter().map(|&number| forms.get(number).cloned());
    layers.collect::<Option<Vec<_>>>().ok_or_else(|| "a layer has a form that is not there".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use splitzip_host::{Bases, Dtype, Scheme};

    #[test]
    fn messages_are_read_as_they_were_written_and_nothing_else_is_read() {
        let message =
            Message { kind: Kind::Landed, to: 1, sender: u64::MAX, transfer: 7, body: vec![1, 2, 3] };
        let packed = message.pack();
        assert_eq!(Message::unpack(&packed), Some(message));
        for length in 0..HEADER {
            assert_eq!(Message::unpack(&packed[..length]), None);
        }
        for at in 0..8 {
            let mut other = packed.clone();
            other[at] ^= 0x40;
            assert_eq!(Message::unpack(&other), None, "byte {at}");
        }
        let landed = Landed { layer: 3, credit: Credit { slot: 1, generation: 9 }, bytes: 1 << 40 };
        assert_eq!(Landed::unpack(&landed.pack()), Some(landed));
        assert_eq!(Landed::unpack(&landed.pack()[1..]), None);
        let credits = [Credit { slot: 0, generation: 1 }, Credit { slot: 1, generation: u32::MAX }];
        assert_eq!(unpack_credits(&pack_credits(&credits)), credits);
    }

    #[test]
    fn plans_hold_every_form_once() {
        let tensor = |scheme| TensorSpec::new("k", Dtype::Bf16, scheme, &[4, 64]).with_id(u64::MAX);
        let keys = FrameSpec::new(vec![tensor(Scheme::W2x3).with_bases(Bases::Channel)], Flags::CHECKSUMS);
        let stored =
            FrameSpec { layout_id: 5, ..FrameSpec::new(vec![tensor(Scheme::Stored)], Flags::default()) };
        let layers = [keys.clone(), stored.clone(), keys.clone(), keys];
        let packed = pack_plan(&layers);
        assert_eq!(unpack_plan(&packed), Ok(layers.to_vec()));
        assert_eq!(String::from_utf8_lossy(&packed).matches("stored").count(), 1);
        assert!(unpack_plan(b"{}").is_err());
        assert!(
            unpack_plan(br#"{"specs":[],"layers":[0]}"#).is_err_and(|reason| reason.contains("not there"))
        );
        let pointless = String::from_utf8_lossy(&packed)
            .replace("\"bf16\",\"w2x3\",\"channel\"", "\"e4m3\",\"w4\",\"chunk\"");
        assert!(unpack_plan(pointless.as_bytes()).is_err_and(|reason| reason.contains("pointless")));
    }
}
