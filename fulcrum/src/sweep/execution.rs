//! A sweep while it runs: points on all threads, rows into the journal, and the table at the end.

use super::Sweep;
use super::counts::SweepCounts;
use super::halving::{Halving, HalvingLadder};
use super::highlights::RowHighlights;
use super::journal::SweepJournal;
use super::points::SweepPoints;
use super::rank::BestRow;
use super::row::PointStatus;
use super::table_stamp::TableStamp;
use crate::error::Result;
use crate::progress::{ProgressEvent, ProgressFn, TaskStage};
use rayon::prelude::*;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The rows that are there, and what is still to be run. The row of a point on a rung has a place
/// of its own in the journal: first those of rung 0, then those of rung 1, and so on.
pub(crate) struct SweepExecution<'s> {
    sweep: &'s Sweep,
    points: SweepPoints,
    journal: Mutex<SweepJournal>,
    /// By place: whether an earlier run has finished the row.
    done: Vec<bool>,
    finished_before: u64,
    by_status: [AtomicU64; PointStatus::ALL.len()],
    /// How many rows there will be.
    rows: u64,
    progress: &'s ProgressFn<'s>,
}

impl<'s> SweepExecution<'s> {
    /// The execution of `points` of `sweep`, which makes `rows` rows. Nothing is run yet.
    pub(crate) fn new(
        sweep: &'s Sweep,
        points: SweepPoints,
        journal: SweepJournal,
        rows: u64,
        progress: &'s ProgressFn<'s>,
    ) -> Self {
        let done = journal.finished();
        let finished_before = done.iter().filter(|done| **done).count() as u64;
        progress(ProgressEvent::Begin(TaskStage::Sweeping));
        progress(ProgressEvent::Steps { done: finished_before, of: rows });
        let (journal, by_status) = (Mutex::new(journal), Default::default());
        Self { sweep, points, journal, done, finished_before, by_status, rows, progress }
    }

    fn place(&self, rung: usize, position: u64) -> u64 {
        rung as u64 * self.points.count() + position
    }

    /// Runs all points.
    pub(crate) fn run_all(&self) -> Result<()> {
        (0..self.points.count()).into_par_iter().try_for_each(|position| self.run(0, position))
    }

    fn run(&self, rung: usize, position: u64) -> Result<()> {
        let place = self.place(rung, position);
        if self.done[place as usize] {
            return Ok(());
        }
        let (status, row) = self.sweep.row(self.points.index(position), rung)?;
        self.by_status[status as usize].fetch_add(1, Ordering::Relaxed);
        let run: u64 = self.by_status.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let done = (self.finished_before + run).min(self.rows);
        (self.progress)(ProgressEvent::Steps { done, of: self.rows });
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).add(place, &row)
    }

    /// Runs each point on the rungs that it reaches, ranked by `best`, which sees the rows of the
    /// last rung.
    pub(crate) fn climb(&self, halving: &Halving, best: &mut BestRow<'_>) -> Result<HalvingLadder> {
        let last = halving.steps.values.len() - 1;
        halving.climb(self.points.count(), |rung, positions| {
            positions.par_iter().try_for_each(|&position| self.run(rung, position))?;
            let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
            let mut ranked = Vec::new();
            for &position in positions {
                let row = journal.row(self.place(rung, position) as usize)?;
                ranked.extend(best.rank(&row).map(|number| (position, number)));
                if rung == last {
                    best.see(&row);
                }
            }
            Ok(ranked)
        })
    }

    /// Writes the row of each point on the last rung that it reached. Without rungs, `best` sees
    /// every row.
    pub(crate) fn finish(
        self,
        out: &Path,
        stamp: TableStamp,
        mut best: Option<BestRow<'_>>,
        ladder: Option<HalvingLadder>,
    ) -> Result<SweepCounts> {
        (self.progress)(ProgressEvent::End);
        let points = self.points.count() as usize;
        let journal = self.journal.into_inner().unwrap_or_else(PoisonError::into_inner);
        let columns = &self.sweep.columns;
        let mut highlights = RowHighlights::new(columns);
        match &ladder {
            None => {
                let mut see = |row: &str| {
                    best.iter_mut().for_each(|best| best.see(row));
                    highlights.see(row);
                };
                journal.publish(columns, out, stamp, &mut (0..points), &mut see)?;
            }
            Some(ladder) => {
                let reached = ladder.reached(points);
                let place = |(position, rung): (usize, &usize)| rung * points + position;
                let mut places = reached.iter().enumerate().map(place);
                journal.publish(columns, out, stamp, &mut places, &mut |_| {})?;
            }
        }
        let by_status = self.by_status.map(AtomicU64::into_inner);
        let (finished_before, best) = (self.finished_before, best.and_then(BestRow::row));
        let highlights = highlights.finish();
        Ok(SweepCounts { by_status, finished_before, best, highlights, ladder })
    }
}
