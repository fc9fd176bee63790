//! Striped memories: pages lie in two other memories in turn, some in the one, then some in the
//! other. A stream over them uses both memories at once, as with Linux's weighted interleaving or a
//! hardware interleave set.

use crate::files::ProfileError;
use crate::machine::device::{DeviceId, DeviceKind};
use crate::machine::graph::Machine;
use crate::machine::link::{Link, LinkDetails};
use crate::machine::memory::{DRAM, Interleave, Memory, MemoryDetails, MemoryId, MemoryKind, Stripe};
use crate::units::{Bytes, BytesPerSec, Seconds, Sourced};

/// The most pages in a row: Linux keeps a node's weight in a byte.
pub(crate) const MOST_PAGES: u64 = 255;

impl Machine {
    /// Whether `device` uses what is in `memory` without a link: its own memory, or one that it
    /// reads in place.
    pub fn reads_in_place(&self, device: DeviceId, memory: MemoryId) -> bool {
        let device = self.device(device);
        device.memory == memory || device.reads.contains(&memory)
    }

    /// The memories that hold `bytes` of `memory`, with the bytes in each: itself, or its stripes'
    /// memories. The remainder of the division lies in the first.
    pub fn bytes_by_memory(
        &self,
        memory: MemoryId,
        bytes: Bytes,
    ) -> impl Iterator<Item = (MemoryId, Bytes)> + use<> {
        let parts = match self.memory(memory).stripes[..] {
            [first, second] => {
                let share = u128::from(bytes.get()) * u128::from(second.pages);
                let there = Bytes::new((share / u128::from(first.pages + second.pages)) as u64);
                [Some((first.memory, bytes - there)), Some((second.memory, there))]
            }
            _ => [Some((memory, bytes)), None],
        };
        parts.into_iter().flatten()
    }

    /// Updates capacity, rates and latency of striped memories from the memories they lie in. A
    /// striped memory is full when one of these is, and a stream takes as long as the slower one.
    pub fn restripe(&mut self) {
        for id in self.memory_ids() {
            let stripes = &self.memory(id).stripes;
            if stripes.is_empty() {
                continue;
            }
            let total: u64 = stripes.iter().map(|stripe| stripe.pages).sum();
            let parts = || stripes.iter().map(|stripe| (self.memory(stripe.memory), stripe.pages));
            let reason = parts().map(|(m, pages)| format!("{pages} pages of {}", m.name));
            let reason = reason.collect::<Vec<_>>().join(" to ");
            let whole = |rate: BytesPerSec, pages: u64| rate * (total as f64 / pages as f64);
            let full = |(m, pages): (&Memory, u64)| {
                u128::from(m.capacity.value.get()) * u128::from(total) / u128::from(pages)
            };
            let capacity = parts().map(full).min().unwrap_or(0);
            let read = parts().map(|(m, pages)| whole(m.bandwidth.value, pages));
            let write = |m: &Memory| m.details.write.as_ref().map_or(m.bandwidth.value, |write| write.value);
            let write = parts().map(|(m, pages)| whole(write(m), pages));
            let slowest = |rates: &mut dyn Iterator<Item = BytesPerSec>| {
                Sourced::estimated(rates.min_by(BytesPerSec::total_cmp).unwrap_or_default(), &reason)
            };
            let latency = parts().try_fold(Seconds::ZERO, |mean, (m, pages)| {
                Some(mean + m.latency.as_ref()?.value * (pages as f64 / total as f64))
            });
            let changed = Memory {
                capacity: Sourced::estimated(
                    Bytes::new(u64::try_from(capacity).unwrap_or(u64::MAX)),
                    &reason,
                ),
                bandwidth: slowest(&mut read.into_iter()),
                latency: latency.map(|latency| Sourced::estimated(latency, &reason)),
                details: MemoryDetails {
                    write: parts()
                        .any(|(m, _)| m.details.write.is_some())
                        .then(|| slowest(&mut write.into_iter())),
                    ..self.memory(id).details.clone()
                },
                ..self.memory(id).clone()
            };
            self.memories[id.0] = changed;
        }
    }

    /// Lets the host's cores read CXL memory in place, alone and as one striped memory together
    /// with DRAM. `pages` says how their pages alternate; without it they suit both rates. A
    /// striped memory that exists is updated.
    pub(crate) fn stripe_over_cxl(&mut self, pages: Option<Interleave>) -> Result<(), ProfileError> {
        let Some(cxl) = self.memories.iter().position(|m| m.kind == MemoryKind::Cxl).map(MemoryId) else {
            return Ok(());
        };
        let rate = |id: MemoryId| self.memory(id).bandwidth.value;
        let Interleave { dram, cxl: there } =
            pages.unwrap_or_else(|| Interleave::suited_to(rate(DRAM), rate(cxl)));
        if dram.max(there) > MOST_PAGES {
            let message = format!("{dram} pages to {there}: a memory has at most {MOST_PAGES} in turn");
            return Err(ProfileError::Unfit { part: "cxl.interleave".to_owned(), message });
        }
        let stripes = vec![Stripe { memory: DRAM, pages: dram }, Stripe { memory: cxl, pages: there }];
        let over_both = |m: &Memory| m.stripes.iter().map(|stripe| stripe.memory).eq([DRAM, cxl]);
        match self.memories.iter().position(over_both).map(MemoryId) {
            Some(both) => {
                self.memories[both.0].stripes = stripes;
                self.restripe();
                self.suit_links(both);
            }
            None => self.add_striped(stripes, cxl),
        }
        Ok(())
    }

    fn add_striped(&mut self, stripes: Vec<Stripe>, cxl: MemoryId) {
        let both = MemoryId(self.memories.len());
        let striped_name = format!("{}+{}", self.memory(DRAM).name, self.memory(cxl).name);
        let (name, kind, price_per_gb) = (striped_name.clone(), MemoryKind::Striped, None);
        let details = MemoryDetails::default();
        self.memories.push(Memory { name, kind, stripes, price_per_gb, details, ..self.memory(cxl).clone() });
        self.restripe();
        let cpus = self.devices.iter_mut().filter(|d| d.kind == DeviceKind::Cpu && d.memory == DRAM);
        cpus.for_each(|cpu| cpu.reads.extend([cxl, both]));
        // A device that reaches CXL memory over its own wire reaches both memories over it.
        let direct =
            self.links.iter().filter(|link| link.wire.is_some() && [link.from, link.to].contains(&cxl));
        let instead = |end: MemoryId| if end == cxl { both } else { end };
        let striped = |link: &Link| Link {
            name: link
                .name
                .split("->")
                .map(|end| if end == "cxl" { &striped_name } else { end })
                .collect::<Vec<_>>()
                .join("->"),
            from: instead(link.from),
            to: instead(link.to),
            details: LinkDetails::default(),
            ..link.clone()
        };
        let links: Vec<Link> = direct.map(striped).collect();
        self.links.extend(links);
        self.suit_links(both);
    }

    /// Updates the links from and to the striped memory: the slower of their wires and of both
    /// memories.
    fn suit_links(&mut self, both: MemoryId) {
        let memory = self.memory(both);
        let (read, write) = (&memory.bandwidth, memory.details.write.as_ref().unwrap_or(&memory.bandwidth));
        let (read, write) = (read.value, write.value);
        let wires: Vec<_> = self.links.iter().map(|l| l.wire.map(|w| self.link(w).bandwidth.value)).collect();
        for (link, wire) in self.links.iter_mut().zip(wires) {
            let memories = match (link.from == both, link.to == both) {
                (true, _) => read,
                (_, true) => write,
                _ => continue,
            };
            let rate = wire.map_or(memories, |wire| wire.min(memories));
            link.bandwidth = Sourced::estimated(rate, "the slower of its wire and of both memories at once");
        }
    }
}
