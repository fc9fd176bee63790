//! A host's measurements beyond its rates, as tables of at most 80 columns.

use crate::files::Presence;
use crate::parts::host::dram::{Dram, LoadedLatency, PageMode, ReadWriteMixes, StoreKind};
use crate::parts::host::file::Host;
use crate::parts::host::numa::Numa;
use std::fmt;

/// Clock, memory and crossovers. It says what is absent.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for team in &self.teams {
            let clock = word(team.frequency.as_option().map(|clock| clock.value));
            writeln!(f, "clock with {:>3} busy {clock:>14}", team.threads)?;
        }
        self.dram.fmt_load(f)?;
        self.fmt_nodes(f)?;
        let Some(team) = self.teams.last() else { return Ok(()) };
        for (dtype, crossover) in &team.crossover {
            let rows = word(crossover.rows.as_option());
            writeln!(f, "\n{dtype}: rows from which {} beats {}: {rows}", crossover.above, crossover.below)?;
        }
        Ok(())
    }
}

/// A quantity, or the word `absent`.
fn word(quantity: Option<impl fmt::Display>) -> String {
    quantity.map_or("absent".to_owned(), |quantity| quantity.to_string())
}

impl Dram {
    fn fmt_load(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.loaded_latency {
            Presence::Absent => writeln!(f, "\nlatency under load: absent")?,
            Presence::Present(LoadedLatency { threads, points, .. }) => {
                writeln!(f, "\nread by other cores ({threads}), latency meanwhile")?;
                for point in points {
                    writeln!(f, "  {:>12} {:>10}", point.bandwidth.to_string(), point.latency.to_string())?;
                }
            }
        }
        match &self.mixes {
            Presence::Absent => writeln!(f, "\nreads and writes mixed: absent")?,
            Presence::Present(ReadWriteMixes { threads, points, .. }) => {
                writeln!(f, "\nreads : writes by all cores ({threads})")?;
                for mix in points {
                    let stores = match mix.stores {
                        StoreKind::None => "no stores",
                        StoreKind::Ordinary => "ordinary stores",
                        StoreKind::NonTemporal => "non-temporal stores",
                    };
                    writeln!(f, "  {} : {} {:>12}  {stores}", mix.reads, mix.writes, mix.rate.to_string())?;
                }
            }
        }
        let Presence::Present(pages) = &self.pages else { return writeln!(f, "\npages: absent") };
        writeln!(
            f,
            "\n{:<12} {:>12} {:>14} {:>12} {:>10}",
            "pages asked", "of", "huge obtained", "read", "latency"
        )?;
        for PageMode { asked, size, huge, read, latency } in pages {
            let asked = asked.name();
            let (size, huge) = (size.to_string(), huge.value.to_string());
            let (read, latency) = (read.value.to_string(), latency.value.to_string());
            writeln!(f, "{asked:<12} {size:>12} {huge:>14} {read:>12} {latency:>10}")?;
        }
        Ok(())
    }
}

impl Host {
    fn fmt_nodes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Presence::Present(Numa { paths, .. }) = &self.numa else { return writeln!(f, "\nnodes: absent") };
        writeln!(
            f,
            "\n{:<16} {:>8} {:>12} {:>12} {:>10}",
            "cores → memory", "distance", "read", "write", "latency"
        )?;
        for path in paths {
            let nodes = format!("node {} → {}", path.from, path.to);
            let rates = path.measured.as_option();
            let (read, write) =
                (word(rates.map(|rates| rates.read.value)), word(rates.map(|rates| rates.write.value)));
            let (distance, latency) =
                (word(path.distance.as_option()), word(rates.map(|rates| rates.latency.value)));
            writeln!(f, "{nodes:<16} {distance:>8} {read:>12} {write:>12} {latency:>10}")?;
        }
        Ok(())
    }
}
