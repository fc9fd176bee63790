//! What of a sequence's tokens the KV cache still has: prefixes that others computed, and its own freed blocks.

use super::blocks::Blocks;
use super::engine::Engine;
use super::request::Request;
use super::sequence::Sequence;

/// Blocks that are found for `sequence`, from its first token on, and how many of them are free now.
pub(super) fn find(engine: &Engine, blocks: &Blocks, sequence: &Sequence) -> (u64, u64) {
    if !engine.prefix_caching {
        return (0, 0);
    }
    let (mut found, mut idle) = (0, 0);
    let (names, whole) = shared(engine, blocks, &sequence.request);
    for &name in names {
        found += blocks.found(name);
        idle += blocks.idle(name);
    }
    if whole && let Some((run, filled)) = sequence.freed {
        // The last token is computed in any case: its logits are wanted.
        let most = ((sequence.known() - 1) / engine.block_size).saturating_sub(found);
        let own = blocks.remaining(run).min(filled).min(most);
        return (found + own, idle + own);
    }
    (found, idle)
}

/// Blocks that are found for a request that nobody served yet.
pub(super) fn find_prompt(engine: &Engine, blocks: &Blocks, request: &Request) -> u64 {
    if !engine.prefix_caching {
        return 0;
    }
    shared(engine, blocks, request).0.iter().map(|&name| blocks.found(name)).sum()
}

/// Holds the first `count` blocks, which [`find`] found.
pub(super) fn hold(engine: &Engine, blocks: &mut Blocks, sequence: &mut Sequence, count: u64) {
    let names = shared(engine, blocks, &sequence.request).0.to_vec();
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

/// Names the prefixes that `sequence` has computed, for others to find.
pub(super) fn publish(engine: &Engine, blocks: &mut Blocks, sequence: &mut Sequence) {
    if !engine.prefix_caching {
        return;
    }
    let each = engine.prefix_tokens / engine.block_size;
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
pub(super) fn release(engine: &Engine, blocks: &mut Blocks, sequence: &mut Sequence) {
    let own = sequence.held - sequence.shared_blocks;
    let filled = (sequence.computed / engine.block_size).saturating_sub(sequence.shared_blocks);
    let run = blocks.release(own);
    // Where another was first with a prefix, its copy is among them: what follows is not found again.
    sequence.freed = (sequence.named == sequence.shared.len()).then_some((run, filled.min(own)));
    for name in sequence.shared.drain(..).rev() {
        blocks.leave(name);
    }
    (sequence.held, sequence.shared_blocks, sequence.computed, sequence.named) = (0, 0, 0, 0);
}

/// The names of a prompt that stand for tokens of it and nothing else.
pub(super) fn names<'r>(engine: &Engine, request: &'r Request) -> &'r [u64] {
    let whole = request.prompt_tokens / engine.prefix_tokens;
    &request.prefix[..request.prefix.len().min(whole as usize)]
}

/// The names of a prompt that are found in a row, and whether that is all of them.
fn shared<'r>(engine: &Engine, blocks: &Blocks, request: &'r Request) -> (&'r [u64], bool) {
    let each = engine.prefix_tokens / engine.block_size;
    let names = names(engine, request);
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
