//! The tokens of a sequence that the KV cache still has: prefixes that others computed, and its own
//! freed blocks.

use crate::serving::engine::request::Request;
use crate::serving::engine::settings::ServingEngine;
use crate::serving::kv::blocks::Blocks;
use crate::serving::schedule::sequence::Sequence;

/// Blocks that are found for `sequence`, from its first token on, and how many of them are free
/// now.
pub(crate) fn find(engine: &ServingEngine, blocks: &Blocks, sequence: &Sequence) -> (u64, u64) {
    if !engine.prefix_caching {
        return (0, 0);
    }
    let (mut found, mut idle) = (0, 0);
    let (names, complete) = found_names(engine, blocks, &sequence.request);
    for &name in names {
        found += blocks.found(name);
        idle += blocks.idle(name);
    }
    if complete && let Some((run, filled)) = sequence.freed {
        // The last token is always computed, because its logits are needed.
        let most = ((sequence.known() - 1) / engine.block_size).saturating_sub(found);
        let own = blocks.remaining(run).min(filled).min(most);
        return (found + own, idle + own);
    }
    (found, idle)
}

/// Blocks that are found for a request that no engine has served yet.
pub(crate) fn find_prompt(engine: &ServingEngine, blocks: &Blocks, request: &Request) -> u64 {
    if !engine.prefix_caching {
        return 0;
    }
    found_names(engine, blocks, request).0.iter().map(|&name| blocks.found(name)).sum()
}

/// Holds the first `count` blocks, which [`find`] found.
pub(crate) fn hold(engine: &ServingEngine, blocks: &mut Blocks, sequence: &mut Sequence, count: u64) {
    let names = found_names(engine, blocks, &sequence.request).0.to_vec();
    let names = if engine.prefix_caching { names } else { Vec::new() };
    for &name in &names {
        sequence.shared_blocks += blocks.found(name);
        blocks.hold(name);
    }
    let freed = sequence.freed.take();
    if let (Some((run, _)), own @ 1..) = (freed, count - sequence.shared_blocks) {
        blocks.reclaim(run, own);
    }
    sequence.named = names.len();
    sequence.shared = names;
}

/// Publishes the names of the prefixes that `sequence` has computed, so that other sequences find
/// them.
pub(crate) fn publish(engine: &ServingEngine, blocks: &mut Blocks, sequence: &mut Sequence) {
    if !engine.prefix_caching {
        return;
    }
    let each = engine.blocks_per_name();
    while let Some(&name) = sequence.request.prefix.get(sequence.named)
        && (sequence.named as u64 + 1) * engine.prefix_tokens
            <= sequence.computed.min(sequence.request.prompt_tokens)
    {
        sequence.named += 1;
        if blocks.publish(name, each) {
            sequence.shared.push(name);
            sequence.shared_blocks += each;
        }
    }
}

/// Frees all blocks that `sequence` holds, its last one first.
pub(crate) fn release(engine: &ServingEngine, blocks: &mut Blocks, sequence: &mut Sequence) {
    let own = sequence.held - sequence.shared_blocks;
    let filled = (sequence.computed / engine.block_size).saturating_sub(sequence.shared_blocks);
    let run = blocks.release(own);
    // If another sequence published a prefix first, the own blocks include a copy of it, so they
    // are not found again.
    sequence.freed = (sequence.named == sequence.shared.len()).then_some((run, filled.min(own)));
    for name in sequence.shared.drain(..).rev() {
        blocks.leave(name);
    }
    (sequence.held, sequence.shared_blocks, sequence.computed, sequence.named) = (0, 0, 0, 0);
}

/// The names whose tokens all belong to the prompt.
pub(crate) fn prompt_names<'r>(engine: &ServingEngine, request: &'r Request) -> &'r [u64] {
    let whole = request.prompt_tokens / engine.prefix_tokens;
    &request.prefix[..request.prefix.len().min(whole as usize)]
}

/// The names of a prompt that are found from its beginning on, and whether these are all names,
/// with all their blocks.
fn found_names<'r>(engine: &ServingEngine, blocks: &Blocks, request: &'r Request) -> (&'r [u64], bool) {
    let each = engine.blocks_per_name();
    let names = prompt_names(engine, request);
    let mut count = 0;
    for &name in names {
        let found = blocks.found(name);
        count += usize::from(found > 0);
        if found < each {
            return (&names[..count], false);
        }
    }
    (names, true)
}
