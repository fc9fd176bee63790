//! Bandwidth and latency from the cores of each NUMA node to the memory of each.

use crate::error::MeasureError;
use crate::memory::cxl;
use crate::memory::latency::Chase;
use crate::method::experiment::{Experiment, expect};
use crate::method::options::Warning;
use crate::method::record::{MeasurementRecord, threads, without_launch};
use crate::method::rig::Rig;
use crate::method::series::SampleSeries;
use crate::operands::array_walk::ArrayWalk;
use crate::operands::probe_memory::ProbeMemory;
use crate::system::numa_nodes::SystemNode;
use hwprofiles::{Bytes, Host, Numa, NumaNode, NumaPath, PathRates, Presence, Seconds};
use kernels::stream::StoreInstruction;
use kernels::{Buffer, Pool, affinity};
use std::hint::black_box;

/// Reads and writes by all our cores of each node, and chases by the first of them, through the
/// memory of each node.
#[derive(Debug)]
pub(crate) struct NumaExperiment {
    nodes: Vec<SystemNode>,
    teams: Vec<Team>,
    memories: Vec<NodeMemory>,
    routes: Vec<Route>,
    /// Whether the kernel lists memory behind CXL.
    cxl: bool,
}

/// Our cores of one node.
#[derive(Debug)]
struct Team {
    node: usize,
    pool: Pool,
}

/// Memory of one node.
#[derive(Debug)]
struct NodeMemory {
    node: usize,
    /// The memory that is read and followed; `None` for the rig's probe memory, where no other node
    /// has memory.
    field: Option<ProbeMemory>,
    /// The memory that is written.
    to: Buffer,
}

/// From one team to one memory, by their indices.
#[derive(Debug)]
struct Route {
    team: usize,
    memory: usize,
    slices: ArrayWalk,
    read: SampleSeries,
    write: SampleSeries,
    chase: Chase,
}

/// Read, write, chase.
const KINDS: usize = 3;

impl NumaExperiment {
    /// Paths between all of `nodes`, from the cores of `cores` that each node has, and warnings
    /// about memory that was not available. `cxl` says whether there is memory behind CXL.
    pub fn new(
        rig: &Rig<'_>,
        nodes: Vec<SystemNode>,
        cores: &[usize],
        cxl: bool,
    ) -> Result<(Self, Vec<Warning>), MeasureError> {
        let mut teams = Vec::new();
        for node in &nodes {
            let ours: Vec<usize> = cores.iter().copied().filter(|core| node.cores.contains(core)).collect();
            if !ours.is_empty() {
                teams.push(Team { node: node.number, pool: Pool::new(&ours)? });
            }
        }
        let with_memory: Vec<&SystemNode> = nodes.iter().filter(|node| node.capacity > Bytes::ZERO).collect();
        let (mut memories, mut warnings) = (Vec::new(), Vec::new());
        for node in &with_memory {
            match NodeMemory::new(rig, node, with_memory.len() == 1) {
                Ok(memory) => memories.push(memory),
                Err(Refused::Here(message)) => {
                    warnings.push(Warning { subject: format!("memory of node {}", node.number), message });
                }
                Err(Refused::Everywhere(error)) => return Err(error),
            }
        }
        let mut routes = Vec::new();
        for (team, Team { pool, .. }) in teams.iter().enumerate() {
            for (memory, NodeMemory { to, .. }) in memories.iter().enumerate() {
                routes.push(Route {
                    team,
                    memory,
                    slices: ArrayWalk::new(to.len() / size_of::<f64>(), 1, pool),
                    read: SampleSeries::default(),
                    write: SampleSeries::default(),
                    chase: Chase::default(),
                });
            }
        }
        Ok((Self { nodes, teams, memories, routes, cxl }, warnings))
    }
}

/// Memory that is not available: that of this node, or any.
enum Refused {
    Here(String),
    Everywhere(MeasureError),
}

impl NodeMemory {
    /// As much memory as the rig's probe memory, once to read and once to write. `alone` is set
    /// where no other node has memory.
    fn new(rig: &Rig<'_>, node: &SystemNode, alone: bool) -> Result<Self, Refused> {
        let len = rig.field.bytes();
        if alone {
            let to = Buffer::new(len.get() as usize).map_err(|error| Refused::Everywhere(error.into()))?;
            return Ok(Self { node: node.number, field: None, to });
        }
        // The operating system kills a process that touches bound memory which is not available.
        if len * 4 > node.free {
            return Err(Refused::Here(format!(
                "not measured: {} of it are free, and {} should be",
                node.free,
                len * 4
            )));
        }
        let bound = || match Buffer::on_node(len.get() as usize, node.number) {
            Ok(buffer) => Ok(buffer),
            Err(error @ kernels::KernelError::Bind { .. }) => {
                Err(Refused::Here(format!("not measured: {error}")))
            }
            Err(error) => Err(Refused::Everywhere(error.into())),
        };
        let field = ProbeMemory::new(rig.subject, rig.all(), bound()?);
        Ok(Self { node: node.number, field: Some(field), to: bound()? })
    }
}

impl Experiment for NumaExperiment {
    fn name(&self) -> String {
        "memory by nodes".to_owned()
    }

    fn points(&self) -> usize {
        KINDS * self.routes.len()
    }

    fn visit(&mut self, point: usize, rig: &Rig<'_>) -> Result<(), MeasureError> {
        let Route { team, memory, slices, read, write, chase } = &mut self.routes[point / KINDS];
        let (pool, memory) = (&self.teams[*team].pool, &mut self.memories[*memory]);
        let (field, to) = (memory.field.as_ref().unwrap_or(&rig.field), memory.to.view_mut::<f64>());
        affinity::restoring(|| {
            pool.pin_caller()?;
            match point % KINDS {
                0 => {
                    if read.is_empty() {
                        let (sum, len) =
                            (rig.subject.read(pool, field.values()), field.values().len() as f64);
                        let kernel =
                            || format!("the read of node {} by {}", memory.node, threads(pool.members()));
                        expect(kernel, sum, len, 1e-6 * len)?;
                    }
                    read.visit(rig, || {
                        black_box(rig.subject.read(pool, &field.values()[slices.next()]));
                    });
                }
                1 => {
                    if write.is_empty() {
                        rig.subject.write(pool, to, FACTOR, StoreInstruction::NonTemporal);
                        let kernel =
                            || format!("the write of node {} by {}", memory.node, threads(pool.members()));
                        for at in (0..to.len()).step_by((to.len() / 64) | 1).chain([to.len() - 1]) {
                            expect(kernel, to[at], FACTOR, 0.0)?;
                        }
                    }
                    write.visit(rig, || {
                        rig.subject.write(
                            pool,
                            &mut to[slices.next()],
                            FACTOR,
                            StoreInstruction::NonTemporal,
                        );
                    });
                }
                _ => chase.visit(rig, field.ring())?,
            }
            Ok(())
        })
    }

    fn fill(&self, host: &mut Host, record: &mut MeasurementRecord<'_>) {
        let node = |node: &SystemNode| NumaNode {
            node: node.number,
            capacity: node.capacity,
            cores: node.cores.clone(),
        };
        let mut numa = Numa { nodes: self.nodes.iter().map(node).collect(), paths: Vec::new() };
        for from in self.nodes.iter().filter(|node| !node.cores.is_empty()) {
            for to in self.nodes.iter().filter(|node| node.capacity > Bytes::ZERO) {
                let measured = self.rates(from.number, to.number, host, record).into();
                let distance = from.distance(to.number).into();
                numa.paths.push(NumaPath { from: from.number, to: to.number, distance, measured });
            }
        }
        // The kernel counts the memory of nodes without cores for the machine, but it is not DRAM.
        let beside_cores = cxl::beside_cores(&numa.nodes);
        if beside_cores > Bytes::ZERO {
            host.dram.capacity.value = host.dram.capacity.value.min(beside_cores);
        }
        if self.cxl {
            host.cxl = cxl::part(&numa).into();
        }
        host.numa = Presence::Present(numa);
    }
}

/// The value that is written.
const FACTOR: f64 = 3.0;

impl NumaExperiment {
    fn rates(
        &self,
        from: usize,
        to: usize,
        host: &Host,
        record: &mut MeasurementRecord<'_>,
    ) -> Option<PathRates> {
        let nodes = |route: &&Route| (self.teams[route.team].node, self.memories[route.memory].node);
        let route = self.routes.iter().find(|route| nodes(route) == (from, to))?;
        let members = self.teams[route.team].pool.members();
        // A node's team may have a size that was not measured.
        let nearest = host.teams.iter().min_by_key(|team| team.threads.abs_diff(members))?;
        let bytes = Bytes::new((route.slices.slice() * size_of::<f64>()) as u64);
        let mut rate = |measure: &str, series: &SampleSeries| {
            let summary = series.summary()?;
            let time = Seconds::new(without_launch(summary.median, nearest.launch.value.get()));
            let label = format!("{measure} of node {to} from node {from}");
            Some(record.sourced(&label, bytes / time, summary))
        };
        let (read, write) = (rate("reads", &route.read)?, rate("writes", &route.write)?);
        let load = route.chase.summary()?;
        let label = format!("loads of node {to} from node {from}");
        let latency = record.sourced(&label, Seconds::new(load.median), load);
        Some(PathRates { threads: members, read, write, latency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::clock::CalibratedClock;
    use crate::method::options::{Depth, Options};
    use crate::operands::kernel_set::RealKernels;
    use hwprofiles::{Dram, Processor, Sourced};
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn node(number: usize, mib: u64, cores: &[usize], distances: &[(usize, u64)]) -> SystemNode {
        let capacity = Bytes::new(mib << 20);
        SystemNode { number, capacity, free: capacity, cores: cores.to_vec(), distances: distances.to_vec() }
    }

    /// The measured paths between `nodes`, of which this machine may lack some.
    fn numa(nodes: Vec<SystemNode>) -> (Numa, Vec<String>) {
        let cores = affinity::available_cores();
        let pool = Pool::new(&cores[..1]).unwrap();
        let rig = Rig {
            field: ProbeMemory::new(&RealKernels, &pool, Buffer::new(1 << 20).unwrap()),
            teams: vec![pool],
            arenas: BTreeMap::new(),
            caches: BTreeMap::new(),
            clock: CalibratedClock::calibrate(),
            visit: Duration::ZERO,
            longest: 1.0,
            subject: &RealKernels,
        };
        let (mut reach, warnings) = NumaExperiment::new(&rig, nodes, &cores, true).unwrap();
        (0..reach.points()).for_each(|point| reach.visit(point, &rig).unwrap());
        let options = Options { depth: Depth::Tiny, date: "2026-11-21".into(), command: "bench".into() };
        let capacity = Sourced::measured(Bytes::new(1 << 30), "2026-11-21", "bench", 0.0);
        let (launch, rate) = (Seconds::new(1e-6), hwprofiles::BytesPerSec::new(1e9));
        let measured = |value| Sourced::measured(value, "2026-11-21", "bench", 0.0);
        let rate = Sourced::measured(rate, "2026-11-21", "bench", 0.0);
        let mut host = Host {
            host: "host".into(),
            cpu: Processor { model: "CPU".into(), cores: cores.clone(), features: vec![] },
            dram: Dram::new(capacity),
            numa: Presence::Absent,
            teams: vec![crate::host::bench::empty_team(1, &measured(launch), &rate)],
            loopback: Presence::Absent,
            gpu: Presence::Absent,
            cxl: Presence::Absent,
        };
        reach.fill(&mut host, &mut MeasurementRecord::new(&options));
        assert_eq!(host.cxl, Presence::Absent, "nothing of it was measured");
        let Presence::Present(numa) = host.numa else { panic!("filled") };
        (numa, warnings.iter().map(Warning::to_string).collect())
    }

    #[test]
    fn one_node_is_a_matrix_of_one() {
        let cores = affinity::available_cores();
        let (numa, warnings) = numa(vec![node(0, 64, &cores, &[(0, 10)])]);
        assert_eq!((numa.nodes.len(), numa.paths.len(), warnings.len()), (1, 1, 0));
        let path = numa.path(0, 0).expect("it is there");
        assert_eq!(path.distance, Presence::Present(10));
        let rates = path.measured.as_option().expect("it is measured");
        assert_eq!(rates.threads, cores.len());
        assert!(
            rates.read.value.get() > 0.0 && rates.write.value.get() > 0.0 && rates.latency.value.get() > 0.0
        );
    }

    #[test]
    fn memory_that_cannot_be_had_is_absent_and_said_to_be() {
        let cores = affinity::available_cores();
        let distances = [(0, 10), (1, 21), (600, 30)];
        let nodes = vec![
            node(0, 64, &cores, &distances),
            // Cores that are not ours, and too little memory.
            node(1, 1, &[100_000], &distances),
            // A node without cores that this machine does not have.
            node(600, 64, &[], &[]),
        ];
        let (numa, warnings) = numa(nodes);
        let paths: Vec<_> = numa.paths.iter().map(|path| (path.from, path.to)).collect();
        assert_eq!(paths, [(0, 0), (0, 1), (0, 600), (1, 0), (1, 1), (1, 600)]);
        for path in numa.paths.iter().filter(|path| (path.from, path.to) != (0, 0)) {
            assert_eq!(path.measured, Presence::Absent, "{path:?}");
        }
        let (distance, unknown) = (&numa.paths[2].distance, &numa.path(1, 600).expect("there").distance);
        assert_eq!((distance, unknown), (&Presence::Present(30), &Presence::Present(30)));
        let warned = |words: &str| warnings.iter().any(|warning| warning.contains(words));
        assert!(
            warned("node 1: not measured") && warned("should be") && warned("node 600: not measured"),
            "{warnings:?}"
        );
    }
}
