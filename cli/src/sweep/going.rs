//! A sweep under way: points run on all threads, rows that go to its journal, and the table at the end.

use super::Sweep;
use super::counts::Counts;
use super::halving::{Halving, Ladder};
use super::journal::Journal;
use super::points::Points;
use super::rank::Best;
use super::stamp::ShardStamp;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// It, with the rows that are there. A point's row on a rung has a place of its own in the journal: rung after rung.
pub struct Going<'s> {
    sweep: &'s Sweep,
    points: Points,
    journal: Mutex<Journal>,
    /// Rows that an earlier run had finished.
    done: Vec<bool>,
    counts: Counts,
    progress: ProgressBar,
}

impl<'s> Going<'s> {
    /// Nothing is run yet; `runs` is how many rows there will be.
    pub fn new(sweep: &'s Sweep, points: Points, (journal, done): (Journal, Vec<bool>), runs: u64) -> Self {
        let before = done.iter().filter(|done| **done).count() as u64;
        let counts = Counts { before, ..Counts::default() };
        Self { sweep, points, journal: Mutex::new(journal), done, counts, progress: progress(runs, before) }
    }

    fn place(&self, rung: usize, position: u64) -> u64 {
        rung as u64 * self.points.count() + position
    }

    /// Runs all points on one rung.
    pub fn all(&self) -> anyhow::Result<()> {
        (0..self.points.count()).into_par_iter().try_for_each(|position| self.one(0, position))
    }

    fn one(&self, rung: usize, position: u64) -> anyhow::Result<()> {
        let place = self.place(rung, position);
        if self.done[place as usize] {
            return Ok(());
        }
        let (status, row) = self.sweep.point(self.points.index(position), rung)?;
        self.counts.by_status[status as usize].fetch_add(1, Ordering::Relaxed);
        self.progress.inc(1);
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).add(place, &row)
    }

    /// Runs the points on as many rungs as they reach, ranked as `best` does, to which the rows of the last are shown.
    pub fn climb(&self, halving: &Halving, best: &mut Best<'_>) -> anyhow::Result<Ladder> {
        let last = halving.steps.values.len() - 1;
        halving.climb(self.points.count(), |rung, going| {
            going.par_iter().try_for_each(|&position| self.one(rung, position))?;
            let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
            let mut ranked = Vec::new();
            for &position in going {
                let row = journal.row(self.place(rung, position) as usize)?;
                ranked.extend(best.rank(&row).map(|number| (position, number)));
                if rung == last {
                    best.see(&row);
                }
            }
            Ok(ranked)
        })
    }

    /// How many rows the table will have.
    pub fn rows(&self) -> u64 {
        self.points.count()
    }

    /// Writes each point's row, of the last rung that it reached, and shows it to `best` where there is but one.
    pub fn end(
        self,
        out: &Path,
        stamp: Option<ShardStamp>,
        mut best: Option<Best<'_>>,
        ladder: Option<Ladder>,
    ) -> anyhow::Result<Counts> {
        self.progress.finish_and_clear();
        let points = self.points.count() as usize;
        let journal = self.journal.into_inner().unwrap_or_else(PoisonError::into_inner);
        let columns = &self.sweep.columns;
        match &ladder {
            None => {
                let mut see = |row: &str| best.iter_mut().for_each(|best| best.see(row));
                journal.publish(columns, out, stamp, &mut (0..points), &mut see)?;
            }
            Some(ladder) => {
                let reached = ladder.reached(points);
                let mut rows = reached.iter().enumerate().map(|(position, rung)| rung * points + position);
                journal.publish(columns, out, stamp, &mut rows, &mut |_| {})?;
            }
        }
        Ok(Counts { best: best.and_then(Best::row), ladder, ..self.counts })
    }
}

fn progress(all: u64, before: u64) -> ProgressBar {
    let bar = ProgressBar::new(all).with_position(before);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} points, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.reset_eta();
    bar
}
