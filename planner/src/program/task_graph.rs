//! The task graph of a program: what waits for what.

use crate::program::task::{Lane, Program, TaskId};
use hwprofiles::{Machine, Seconds};
use petgraph::Direction;
use petgraph::algo::toposort;
use petgraph::dot::{Config, Dot};
use petgraph::graph::{DiGraph, EdgeReference, NodeIndex};
use std::collections::BTreeMap;

/// Why a task waits for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskEdge {
    /// The other task precedes it in the same queue.
    Queue,
    /// The task names the other one in [`crate::Task::after`].
    Dependency,
}

/// The tasks of a program as a directed graph. Each edge leads from a task to one that waits for
/// it.
#[derive(Debug, Clone)]
pub struct TaskGraph {
    graph: DiGraph<TaskId, TaskEdge>,
}

/// Tasks that wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("task {} waits for itself", .0.0)]
pub struct TaskCycle(pub TaskId);

impl TaskGraph {
    /// The graph of `program`, whose links queue as their wires do on `machine`.
    pub fn new(program: &Program, machine: &Machine) -> Self {
        let mut graph = DiGraph::with_capacity(program.tasks.len(), 2 * program.tasks.len());
        let ids = (0..program.tasks.len() as u32).map(TaskId);
        let nodes: Vec<NodeIndex> = ids.map(|id| graph.add_node(id)).collect();
        let mut last: BTreeMap<Lane, NodeIndex> = BTreeMap::new();
        for (task, &node) in program.tasks.iter().zip(&nodes) {
            if let Some(previous) = last.insert(task.lane.queue(machine), node) {
                graph.add_edge(previous, node, TaskEdge::Queue);
            }
            for earlier in &task.after {
                graph.add_edge(nodes[earlier.0 as usize], node, TaskEdge::Dependency);
            }
        }
        Self { graph }
    }

    /// The tasks in an order in which each follows all that it waits for.
    ///
    /// # Errors
    /// [`TaskCycle`] if tasks wait for each other.
    pub fn order(&self) -> Result<Vec<TaskId>, TaskCycle> {
        match toposort(&self.graph, None) {
            Ok(nodes) => Ok(nodes.into_iter().map(|node| self.graph[node]).collect()),
            Err(cycle) => Err(TaskCycle(self.graph[cycle.node_id()])),
        }
    }

    /// The longest path by the tasks' durations: its length, and its tasks from first to last.
    ///
    /// # Errors
    /// [`TaskCycle`] if tasks wait for each other.
    pub fn critical_path(
        &self,
        duration: impl Fn(TaskId) -> Seconds,
    ) -> Result<(Seconds, Vec<TaskId>), TaskCycle> {
        let order = self.order()?;
        let mut ends = vec![Seconds::ZERO; order.len()];
        let mut previous: Vec<Option<TaskId>> = vec![None; order.len()];
        let mut last: Option<TaskId> = None;
        for &id in &order {
            let node = NodeIndex::new(id.0 as usize);
            let mut start = Seconds::ZERO;
            for before in self.graph.neighbors_directed(node, Direction::Incoming) {
                if previous[node.index()].is_none() || ends[before.index()] > start {
                    (start, previous[node.index()]) = (ends[before.index()], Some(self.graph[before]));
                }
            }
            ends[node.index()] = start + duration(id);
            if last.is_none_or(|last| ends[node.index()] > ends[last.0 as usize]) {
                last = Some(id);
            }
        }
        let mut path: Vec<TaskId> = std::iter::successors(last, |&task| previous[task.0 as usize]).collect();
        path.reverse();
        Ok((last.map_or(Seconds::ZERO, |last| ends[last.0 as usize]), path))
    }
}

impl Program {
    /// The task graph in Graphviz's `dot` language. Dashed edges are the order within queues.
    pub fn to_dot(&self, machine: &Machine) -> String {
        let graph = TaskGraph::new(self, machine).graph;
        let node = |_: &DiGraph<TaskId, TaskEdge>, (_, id): (NodeIndex, &TaskId)| {
            let task = &self.tasks[id.0 as usize];
            let layer = task.layer.map_or(String::new(), |layer| format!(" of layer {layer}"));
            let lane = task.lane.name(machine).replace('\\', r"\\").replace('"', r#"\""#);
            format!(r#"label = "{}: {}{layer}\n{lane}""#, id.0, task.name())
        };
        let edge = |_: &DiGraph<TaskId, TaskEdge>, edge: EdgeReference<'_, TaskEdge>| match edge.weight() {
            TaskEdge::Queue => "style = dashed".to_owned(),
            TaskEdge::Dependency => String::new(),
        };
        let config = [Config::EdgeNoLabel, Config::NodeNoLabel];
        format!("{:?}", Dot::with_attr_getters(&graph, &config, &edge, &node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::CostModel;
    use crate::fixture::{Spec, formats, model};
    use crate::placement::Placement;
    use crate::program::task::TaskId;
    use hwprofiles::{DeviceId, MemoryId};
    use scenarios::{Phase, Step};

    /// A program in which the accelerator streams its weights from DRAM.
    fn streamed() -> (Machine, Program) {
        let model = model(2, 256);
        let machine = Spec::gpu(1_000_000).machine(&model);
        let mut placement = Placement::uniform(&model, DeviceId(1), MemoryId(0));
        placement.embed = Placement::uniform(&model, DeviceId(0), MemoryId(0)).embed;
        let program = Program::lower(&machine, &model, &placement, Phase::Decode).unwrap();
        (machine, program)
    }

    #[test]
    fn every_task_follows_what_it_waits_for() {
        let (machine, program) = streamed();
        let order = TaskGraph::new(&program, &machine).order().unwrap();
        let mut position = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, id)| position[id.0 as usize] = at);
        for (index, task) in program.tasks.iter().enumerate() {
            assert!(task.after.iter().all(|earlier| position[earlier.0 as usize] < position[index]));
        }
    }

    #[test]
    fn tasks_that_wait_for_each_other_are_reported() {
        let (machine, mut program) = streamed();
        let last = TaskId(program.tasks.len() as u32 - 1);
        program.tasks[0].after.push(last);
        assert!(TaskGraph::new(&program, &machine).order().is_err());
        assert!(TaskGraph::new(&program, &machine).critical_path(|_| Seconds::ZERO).is_err());
    }

    #[test]
    fn the_critical_path_is_a_chain_of_tasks_and_as_long_as_the_rooflines_without_wake_ups() {
        let (mut machine, program) = streamed();
        machine.devices.iter_mut().for_each(|device| device.sync.value = Seconds::ZERO);
        let (model, formats, step) = (model(2, 256), formats(), Step::decode(2, 64));
        let cost_model = CostModel { machine: &machine, model: &model, formats: &formats };
        let cost = |id: TaskId| cost_model.task_cost(&program.tasks[id.0 as usize], &step).unwrap().alone;
        let (length, path) = TaskGraph::new(&program, &machine).critical_path(cost).unwrap();
        let sum = path.iter().fold(Seconds::ZERO, |sum, &id| sum + cost(id));
        assert!(path.is_sorted());
        assert!((length.get() - sum.get()).abs() <= 1e-12 * sum.get());
        let roofline = crate::cost::Roofline::new(&cost_model, &program, &step).unwrap();
        assert!((length.get() - roofline.critical_path.get()).abs() <= 1e-12 * length.get());
    }

    #[test]
    fn the_dot_text_names_every_task_once_and_every_dependency() {
        let (machine, program) = streamed();
        let dot = program.to_dot(&machine);
        assert!(dot.starts_with("digraph {"), "{dot}");
        assert_eq!(dot.matches("label = ").count(), program.tasks.len());
        let dependencies: usize = program.tasks.iter().map(|task| task.after.len()).sum();
        assert_eq!(dot.matches(" -> ").count() - dot.matches("style = dashed").count(), dependencies);
        assert!(dot.contains("fetch qkv of layer 1"), "{dot}");
    }
}
