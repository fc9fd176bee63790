//! Fulcrum's CPU loops beside public ones, in the same process, on the same arrays, in turn.
//!
//! Within a run every contender is visited once a round; the fastest call of each visit and the
//! median of the rounds count. The spread is that of the medians of several runs. Printed is each
//! contender's rate and Fulcrum's share of the better peer's.
//!
//! `cpu_peers [streams|products] [runs]`

mod contest;
mod products;
mod streams;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "all".to_owned());
    let runs = arguments.next().map_or(3, |runs| runs.parse().expect("a number of runs"));
    let cores = kernels::affinity::available_cores();
    products::wake_the_peers(cores.len());
    for threads in [1, cores.len()] {
        let pools = kernels::Path::supported()
            .into_iter()
            .filter(|path| *path != kernels::Path::Reference)
            .map(|path| kernels::Pool::new(&cores[..threads]).expect("our cores").with_path(path))
            .collect::<Vec<_>>();
        if what != "products" {
            streams::compare(&pools, runs);
        }
        if what != "streams" {
            products::compare(&pools, runs);
        }
    }
}
