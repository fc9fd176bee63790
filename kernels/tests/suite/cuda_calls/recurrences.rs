//! The kernels of gated delta nets and of Mamba-2.

use super::values::{assert_close, assert_near, narrow, noise, pool, short, widen};
use crate::host_gpu::{Host, Operand, each_order};
use kernels::cuda::calls::{self, DeltaVectors, RecurrentRows};
use kernels::{DeltaNet, DeltaRows, DeltaState, KvSpan, StridedRows, StridedRowsMut};

/// A pass: the sequence of each span, its earlier positions and its new tokens.
type Spans = [(usize, usize, usize)];

/// The page of a sequence: not its index, as in a pass that leaves sequences out.
const PAGES: [usize; 4] = [2, 0, 3, 1];

fn integers(spans: &Spans) -> (Vec<i32>, Vec<KvSpan>) {
    let (mut numbers, mut row) = (Vec::new(), 0);
    for &(sequence, past, new) in spans {
        numbers.extend([sequence, past, new, row].map(|number| number as i32));
        row += new;
    }
    let span =
        |&(sequence, past, new): &(usize, usize, usize)| KvSpan { sequence: PAGES[sequence], past, new };
    (numbers, spans.iter().map(span).collect())
}

/// A net whose passes run with the GPU's kernels on the host and on the CPU.
struct Case {
    net: DeltaNet,
    is_mamba: bool,
    weights: Vec<f32>,
    bias: Vec<f32>,
    /// By head: rates of decay, biases of steps, skips.
    heads: [Vec<f32>; 3],
    gamma: Vec<f32>,
    /// The states of all sequences: the GPU's and the CPU's.
    kept: [Vec<f32>; 2],
}

impl Case {
    fn new(net: DeltaNet, is_mamba: bool) -> Self {
        let inner = net.value_heads * net.value_dim;
        Self {
            net,
            is_mamba,
            weights: noise(net.channels() * net.taps, 5),
            bias: if is_mamba { noise(net.channels(), 6) } else { vec![] },
            heads: [7, 8, 9].map(|seed| noise(net.value_heads, seed)),
            gamma: noise(if is_mamba { inner } else { net.value_dim }, 10),
            // What an earlier sequence left behind must not matter.
            kept: [(); 2].map(|()| vec![f32::NAN; PAGES.len() * net.kept()]),
        }
    }

    /// One pass; both recurrences go on from what the GPU's convolution has rounded.
    fn check_pass(&mut self, host: &mut Host, spans: &Spans) {
        let (net, what) = (self.net, format!("{:?} {spans:?}", self.net));
        let (numbers, cpu_spans) = integers(spans);
        let rows: usize = spans.iter().map(|&(.., new)| new).sum();
        let stride = net.width() + 3;
        let projected = short(rows * stride, 3 + rows as u64);
        let (mut at, mut state) = (Operand::new(&narrow(&projected)), Operand::new(&self.kept[0]));
        let (mut numbers, mut table) = (Operand::new(&numbers), Operand::new(&PAGES.map(|page| page as i32)));
        let operands = RecurrentRows {
            net,
            projected: (at.values(), stride),
            rows,
            state: state.values(),
            table: table.values(),
            spans: numbers.values(),
        };
        let (mut weights, mut bias) = (Operand::new(&self.weights), Operand::new(&self.bias));
        let bias = self.is_mamba.then(|| bias.values());
        host.run(&calls::delta_convolve(operands, weights.values(), bias));
        let mut wanted = projected;
        let (pool, vectors) = (pool(), [&self.weights[..], &self.bias]);
        let mut strided = StridedRowsMut::new(&mut wanted, stride);
        let mut states = DeltaState(&mut self.kept[1]);
        kernels::delta_convolve(&pool, &net, vectors, &mut strided, &mut states, &cpu_spans);
        let convolved = at.read();
        assert_near(&convolved, &wanted, 1e-5, &what);
        let out = self.recur(host, operands);
        let wanted = self.recur_on_cpu(&widen(&convolved), stride, &cpu_spans);
        // The output is rounded in front of the norm too.
        assert_near(&out, &wanted, 0.02, &what);
        self.kept[0] = state.read();
        let [ours, theirs] = self.kept.each_ref().map(|kept| kept.chunks(net.kept()));
        for (ours, theirs) in ours.zip(theirs).filter(|(_, kept)| !kept[0].is_nan()) {
            assert_close(ours, theirs, 1e-4, &what);
        }
    }

    fn recur(&self, host: &mut Host, rows: RecurrentRows) -> Vec<u16> {
        let [mut rates, mut steps, mut skips] = self.heads.each_ref().map(|values| Operand::new(values));
        let mut gamma = Operand::new(&self.gamma);
        let (log_rates, step_bias) = (rates.values(), steps.values());
        let vectors = DeltaVectors { log_rates, step_bias, gamma: gamma.values(), epsilon: 1e-3 };
        let mut out = Operand::unwritten(rows.rows * self.net.value_heads * self.net.value_dim);
        let calls = match self.is_mamba {
            true => calls::mamba2(rows, vectors, skips.values(), out.values()),
            false => calls::gated_delta(rows, vectors, out.values()),
        };
        calls.iter().for_each(|call| host.run(call));
        out.read()
    }

    fn recur_on_cpu(&mut self, convolved: &[f32], stride: usize, spans: &[KvSpan]) -> Vec<f32> {
        let [log_rates, step_bias, skips] = self.heads.each_ref().map(|values| &values[..]);
        let (projected, gamma) = (StridedRows::new(convolved, stride), &self.gamma[..]);
        let rows = DeltaRows { projected, log_rates, step_bias, gamma, epsilon: 1e-3 };
        let width = self.net.value_heads * self.net.value_dim;
        let mut out = vec![0.0; convolved.len() / stride * width];
        let (pool, target) = (pool(), StridedRowsMut::new(&mut out, width));
        let mut state = DeltaState(&mut self.kept[1]);
        match self.is_mamba {
            true => kernels::mamba2(&pool, &self.net, rows, skips, &mut state, spans, target),
            false => kernels::gated_delta(&pool, &self.net, rows, &mut state, spans, target),
        }
        out
    }
}

#[test]
fn states_and_outputs_are_the_cpus_for_chunks_of_any_length() {
    let net = |key_heads, value_heads, [key_dim, value_dim, taps]: [usize; 3]| DeltaNet {
        key_heads,
        value_heads,
        tiled: false,
        key_dim,
        value_dim,
        taps,
    };
    each_order(|host| {
        for (net, is_mamba) in [
            (net(1, 1, [1, 1, 1]), false),
            (net(2, 4, [12, 16, 4]), false),
            (DeltaNet { tiled: true, ..net(2, 6, [16, 12, 3]) }, false),
            (net(1, 2, [33, 37, 8]), false),
            (net(1, 1, [128, 64, 4]), false),
            (net(1, 1, [130, 20, 2]), false),
            (net(1, 1, [1, 1, 1]), true),
            (net(2, 6, [20, 12, 4]), true),
            (net(1, 2, [33, 37, 8]), true),
        ] {
            let mut case = Case::new(net, is_mamba);
            for spans in [
                &[(0, 0, 3), (1, 0, 17)][..],
                &[(0, 3, 1), (1, 17, 1), (2, 0, 33)],
                &[(1, 18, 9), (2, 33, 2)],
                &[(0, 4, 5)],
                // A sequence takes the place of another one.
                &[(1, 0, 8)],
            ] {
                case.check_pass(host, spans);
            }
        }
    });
}
