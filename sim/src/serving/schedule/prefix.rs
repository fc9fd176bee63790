//! The tokens of a sequence that the KV cache still has: prefixes that others computed, and its own
//! freed blocks.

use crate::serving::engine::request::Request;
use crate::serving::engine::settings::EngineSettings;
use crate::serving::kv::blocks::Blocks;
use crate::serving::schedule::sequence::{OwnBlocks, Sequence};

/// What the KV cache still has of a sequence, from its first token on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FoundPrefix {
    /// Blocks that need not be computed again.
    pub blocks: u64,
    /// How many of them are free now.
    pub idle: u64,
    /// Their tokens.
    pub tokens: u64,
}

/// What is found for `sequence`.
pub(crate) fn find(engine: &EngineSettings, blocks: &Blocks, sequence: &Sequence) -> FoundPrefix {
    if !engine.prefix_caching || sequence.request.prefix.is_empty() && sequence.freed.is_none() {
        return FoundPrefix::default();
    }
    let (names, complete) = found_names(engine, blocks, &sequence.request);
    let mut found = FoundPrefix::default();
    for &name in names {
        found.blocks += blocks.found(name);
        found.idle += blocks.idle(name);
    }
    found.tokens = tokens_of(engine, names.len(), found.blocks);
    if complete && let Some(OwnBlocks { run, filled, least }) = sequence.freed {
        // The last token is always computed, because its logits are needed.
        let most = ((sequence.known() - 1) / engine.block_size).saturating_sub(found.blocks);
        let remaining = blocks.remaining(run);
        let own = if remaining < least { 0 } else { remaining.min(filled).min(most) };
        found.blocks += own;
        found.idle += own;
        found.tokens += own * engine.block_size;
    }
    found
}

/// Tokens that are found for a request that no engine has served yet.
pub(crate) fn find_prompt(engine: &EngineSettings, blocks: &Blocks, request: &Request) -> u64 {
    if !engine.prefix_caching {
        return 0;
    }
    let names = found_names(engine, blocks, request).0;
    tokens_of(engine, names.len(), names.iter().map(|&name| blocks.found(name)).sum())
}

/// The tokens of so many names that were found in so many blocks. Where nothing grows without end,
/// names take no blocks.
fn tokens_of(engine: &EngineSettings, names: usize, blocks: u64) -> u64 {
    match engine.blocks_per_name() {
        0 => names as u64 * engine.prefix_tokens,
        _ => blocks * engine.block_size,
    }
}

/// Holds the first `count` blocks, which [`find`] found.
pub(crate) fn hold(engine: &EngineSettings, blocks: &mut Blocks, sequence: &mut Sequence, count: u64) {
    let names = match engine.prefix_caching && !sequence.request.prefix.is_empty() {
        true => found_names(engine, blocks, &sequence.request).0.to_vec(),
        false => Vec::new(),
    };
    if !engine.sequence.is_plain() {
        names.iter().for_each(|&name| blocks.touch_snapshot(name));
    }
    sequence.named = names.len();
    sequence.shared = if engine.blocks_per_name() > 0 { names } else { Vec::new() };
    for &name in &sequence.shared {
        sequence.shared_blocks += blocks.found(name);
        blocks.hold(name);
    }
    let freed = sequence.freed.take();
    if let (Some(freed), own @ 1..) = (freed, count - sequence.shared_blocks) {
        blocks.reclaim(freed.run, own);
    }
}

/// Publishes the names of the prefixes that `sequence` has computed, so that other sequences find
/// them.
pub(crate) fn publish(engine: &EngineSettings, blocks: &mut Blocks, sequence: &mut Sequence) {
    if !engine.prefix_caching {
        return;
    }
    let each = engine.blocks_per_name();
    while let Some(&name) = sequence.request.prefix.get(sequence.named)
        && (sequence.named as u64 + 1) * engine.prefix_tokens
            <= sequence.computed.min(sequence.request.prompt_tokens)
    {
        sequence.named += 1;
        if each > 0 && blocks.publish(name, each) {
            sequence.shared.push(name);
            sequence.shared_blocks += each;
        }
        let has_state = engine.keeps_state(sequence.named, prompt_names(engine, &sequence.request).len());
        if let snapshot @ 1.. = engine.snapshot_blocks(has_state) {
            blocks.keep_snapshot(name, snapshot);
        }
    }
}

/// Puts the names of `request`'s prompt into `blocks`, as a sequence would that computes them and
/// ends: their last one is overwritten first.
pub(crate) fn remember(engine: &EngineSettings, blocks: &mut Blocks, request: &Request) {
    let each = engine.blocks_per_name();
    if !engine.prefix_caching || !engine.sequence.is_plain() || each == 0 {
        return;
    }
    let mut held = Vec::new();
    for &name in prompt_names(engine, request) {
        if blocks.found(name) == each {
            blocks.hold(name);
        } else if blocks.found(name) == 0 && blocks.free() >= each {
            blocks.take(each);
            blocks.publish(name, each);
        } else {
            break;
        }
        held.push(name);
    }
    held.into_iter().rev().for_each(|name| blocks.leave(name));
}

/// Frees all blocks that `sequence` holds, its last one first.
pub(crate) fn release(engine: &EngineSettings, blocks: &mut Blocks, sequence: &mut Sequence) {
    let own = sequence.held - sequence.shared_blocks;
    let filled = (sequence.computed / engine.block_size).saturating_sub(sequence.shared_blocks);
    let run = blocks.release(own);
    // If another sequence published a prefix first, the own blocks include a copy of it, so they
    // are not found again. A state belongs to no block's end, and windows are in the last blocks.
    let window = engine.sequence.longest_window();
    let is_whole = !engine.sequence.has_state() && window == engine.sequence.longest_pooled_window();
    let is_found = sequence.named == sequence.shared.len() && is_whole;
    let least = if window > 0 { own } else { 0 };
    sequence.freed = is_found.then_some(OwnBlocks { run, filled: filled.min(own), least });
    for name in sequence.shared.drain(..).rev() {
        blocks.leave(name);
    }
    (sequence.held, sequence.shared_blocks, sequence.computed, sequence.named) = (0, 0, 0, 0);
}

/// The names whose tokens all belong to the prompt.
pub(crate) fn prompt_names<'r>(engine: &EngineSettings, request: &'r Request) -> &'r [u64] {
    let whole = request.prompt_tokens / engine.prefix_tokens;
    &request.prefix[..request.prefix.len().min(whole as usize)]
}

/// The names of a prompt that are found from its beginning on, and whether these are all names,
/// with all their blocks. With windows or states, they end where a snapshot was kept.
fn found_names<'r>(engine: &EngineSettings, blocks: &Blocks, request: &'r Request) -> (&'r [u64], bool) {
    let each = engine.blocks_per_name();
    let names = prompt_names(engine, request);
    let plain = engine.sequence.is_plain();
    let mut count = 0;
    for &name in names {
        let found = blocks.found(name);
        // A part of a name's blocks is of use only if they are all that a sequence keeps.
        count += usize::from(found >= if plain { 1 } else { each });
        if found < each {
            return (&names[..restorable(engine, blocks, request, &names[..count])], false);
        }
    }
    let restorable = restorable(engine, blocks, request, names);
    (&names[..restorable], restorable == names.len())
}

/// The most of `names`, from the first one on, behind which a sequence can go on: the state there
/// was kept, and the tokens of each window before it.
fn restorable(engine: &EngineSettings, blocks: &Blocks, request: &Request, names: &[u64]) -> usize {
    if engine.sequence.is_plain() {
        return names.len();
    }
    let [whole, windows] = [true, false].map(|has_state| engine.snapshot_blocks(has_state));
    let within = engine.sequence.longest_window().div_ceil(engine.prefix_tokens) as usize;
    let is_end = |end: &usize| {
        let first = end.saturating_sub(within);
        leaves_a_token(engine, request, *end)
            && blocks.snapshot(names[end - 1]) >= whole
            && names[first..*end].iter().all(|&name| blocks.snapshot(name) >= windows)
    };
    (1..=names.len()).rev().find(is_end).unwrap_or(0)
}

/// Whether a sequence with this request that goes on behind so many names computes a token. It
/// must, because the last token's logits are needed, and a state cannot go back by one token.
pub(crate) fn leaves_a_token(engine: &EngineSettings, request: &Request, names: usize) -> bool {
    !engine.sequence.has_state() || (names as u64 * engine.prefix_tokens) < request.prompt_tokens
}
