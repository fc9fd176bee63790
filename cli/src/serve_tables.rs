//! The tables of a day of serving.

use hwprofiles::write_atomically;
use sim::serving::{Series, Served, Stretch};
use std::fmt::Write;
use std::path::Path;

/// One line for each request, in the order of their numbers; times in seconds.
pub fn write_requests(path: &Path, served: &[Served]) -> anyhow::Result<()> {
    let mut text = String::from(
        "request,arrival_s,prompt_tokens,output_tokens,scheduled_s,first_token_s,last_token_s,ttft_s,tpot_s,e2el_s,\
         cached_tokens,preemptions\n",
    );
    for one in served {
        let [arrival, scheduled, first, last, ttft, e2el] =
            [one.arrival, one.scheduled, one.first_token, one.last_token, one.ttft(), one.e2el()]
                .map(|time| time.to_seconds().get());
        let tpot = one.tpot().map_or(String::new(), |tpot| tpot.to_seconds().get().to_string());
        let Served { id, prompt_tokens, output_tokens, cached_tokens, preemptions, .. } = one;
        writeln!(
            text,
            "{id},{arrival},{prompt_tokens},{output_tokens},{scheduled},{first},{last},{ttft},{tpot},{e2el},\
             {cached_tokens},{preemptions}"
        )?;
    }
    Ok(write_atomically(path, text)?)
}

/// One line for each stretch of time, in order; `metrics.md` says what the columns are.
pub fn write_series(path: &Path, series: &Series, replicas: u64) -> anyhow::Result<()> {
    let every = series.every().to_seconds().get();
    let mut text = String::from(
        "start_s,steps,utilization,mean_running,mean_waiting,prompt_tokens_per_s,output_tokens_per_s,least_free_blocks\n",
    );
    for (index, stretch) in series.stretches().iter().enumerate() {
        let Stretch { steps, busy, running, waiting, prompt_tokens, output_tokens, least_free_blocks } =
            stretch;
        writeln!(
            text,
            "{},{steps:.3},{:.6},{:.6},{:.6},{:.3},{:.3},{}",
            index as f64 * every,
            busy / every / replicas as f64,
            running / every,
            waiting / every,
            prompt_tokens / every,
            output_tokens / every,
            least_free_blocks.map_or(String::new(), |blocks| blocks.to_string()),
        )?;
    }
    Ok(write_atomically(path, text)?)
}
