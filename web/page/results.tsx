// The answer for one machine.
import { useEffect, useState } from "preact/hooks";
import type { Answer, Explanation, Exported, Failure, Plan, Times } from "./planner/answers";
import { memory, mostly, shown, sublayers, tones } from "./places";
import type { Manner, Planner } from "./planner/planner";
import { bytes, percent, rate, seconds } from "./quantities";
import { RooflinePlot } from "./roofline";
import { scenario, toAddress, type MachineChoice, type State } from "./state";

/** An answer to a question that is asked anew when `key` changes. */
export function useAnswer<T>(key: string, ask: ((signal: AbortSignal) => Promise<Answer<T>>) | null): Answer<T> | null {
  const [answered, setAnswered] = useState<{ key: string; answer: Answer<T> } | null>(null);
  useEffect(() => {
    const asking = new AbortController();
    const { signal } = asking;
    if (ask !== null) void ask(signal).then((answer) => signal.aborted || setAnswered({ key, answer }));
    return () => asking.abort();
  }, [key, ask === null]);
  return answered?.key === key ? answered.answer : null;
}

/** A message without what only a file's reader needs: its place in the question that the page wrote. */
function said(text: string): string {
  const message = text.replace(/^scenario:\d+:\d+: /, "").replace(/^nothing fits: /, "");
  return message.charAt(0).toUpperCase() + message.slice(1);
}

export function Failed({ failure }: { failure: Failure }) {
  return (
    <div class="failed" role="alert">
      <strong>{failure.kind === "infeasible" ? "Nothing fits." : "This cannot be answered."}</strong> {said(failure.text)}
    </div>
  );
}

function Headline({ plan }: { plan: Plan }) {
  const { numbers, bands } = plan;
  const tokens = numbers.decode_tokens_per_s;
  // A longer time is a lower rate.
  const band = bands.tpot && tokens ? `${rate(tokens / bands.tpot[1])} to ${rate(tokens / bands.tpot[0])}` : "";
  const first = bands.ttft ? bands.ttft.map((share) => seconds(share * numbers.ttft_s)).join(" to ") : "";
  return (
    <dl class="headline">
      <div>
        <dt>decode{numbers.batch > 1 ? ", all sequences" : ""}</dt>
        <dd>
          <b data-figure="rate">{tokens === null ? "–" : rate(tokens)}</b> tok/s
        </dd>
        <dd class="band">{band && `80 %: ${band}`}</dd>
      </div>
      <div>
        <dt>first token after</dt>
        <dd>
          <b data-figure="ttft">{seconds(numbers.ttft_s)}</b>
        </dd>
        <dd class="band">{first && `80 %: ${first}`}</dd>
      </div>
      <div>
        <dt>energy of a token</dt>
        <dd>
          <b>{numbers.energy_per_token_j === null ? "–" : `${rate(numbers.energy_per_token_j)} J`}</b>
        </dd>
        <dd class="band">{numbers.energy_per_token_j === null ? "a part's power is not known" : "all devices, idle ones too"}</dd>
      </div>
    </dl>
  );
}

const USES = ["weights", "kv", "activations", "staging"] as const;

function Memories({ plan }: { plan: Plan }) {
  return (
    <section>
      <h3>What lies where</h3>
      {Object.entries(plan.holds).map(([name, holds]) => {
        const use = plan.numbers.memory[name];
        const total = use ? USES.reduce((sum, it) => sum + use[it], 0) : 0;
        const words = use ? USES.filter((it) => use[it] > 0).map((it) => `${it} ${bytes(use[it])}`) : [];
        return (
          <div class="memory">
            <span>
              {memory(name)}: {bytes(total)} of {bytes(holds)}
            </span>
            <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={`${name}: ${words.join(", ") || "empty"}`}>
              {use &&
                USES.map((it, at) => {
                  const before = USES.slice(0, at).reduce((sum, other) => sum + use[other], 0);
                  return <rect class={`use-${it}`} x={(100 * before) / holds} y="0" height="4" width={(100 * use[it]) / holds} />;
                })}
            </svg>
            <small>{words.join(", ")}</small>
          </div>
        );
      })}
    </section>
  );
}

/** A column for each layer, a row for each part: where it computes, and below, thin, where its weights lie. */
function LayerPicture({ plan }: { plan: Plan }) {
  const names = [...new Set(plan.layers.flatMap((group) => sublayers(group).map(([name]) => name)))];
  const layers = plan.layers.reduce((sum, group) => sum + group.count, 0);
  const tone = tones(plan);
  const cells = (name: string, row: number) =>
    plan.layers.flatMap((group) => {
      const portions = sublayers(group).find(([known]) => known === name)?.[1] ?? [];
      return portions.map((portion, at) => {
        const before = portions.slice(0, at).reduce((sum, it) => sum + it.share, 0);
        const own = [portion];
        const bar = { x: group.first, width: group.count };
        return (
          <g>
            <rect {...bar} class={tone.get(mostly(own, "decode"))} y={row * 10 + 6 * before} height={6 * portion.share} />
            <rect {...bar} class={tone.get(mostly(own, "home"))} y={row * 10 + 6 + 2 * before} height={2 * portion.share} />
          </g>
        );
      });
    });
  return (
    <div class="picture">
      <div class="names">
        {names.map((name) => (
          <span>{name}</span>
        ))}
      </div>
      <svg
        viewBox={`0 0 ${layers} ${names.length * 10}`}
        style={{ height: `${names.length * 1.5}rem` }}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${layers} layers, first to last from left to right; the table below says the same`}
      >
        {names.map(cells)}
      </svg>
      <p class="legend">
        {[...tone].map(([place, tone]) => (
          <span>
            <svg viewBox="0 0 1 1" aria-hidden="true">
              <rect class={tone} width="1" height="1" />
            </svg>
            {place}
          </span>
        ))}
        <small>thick: where the answer is computed; thin: where weights or cache lie</small>
      </p>
    </div>
  );
}

function LayerMap({ plan }: { plan: Plan }) {
  return (
    <section>
      <h3>The layers</h3>
      <LayerPicture plan={plan} />
      <details>
        <summary>Layer by layer</summary>
        <LayerTable plan={plan} />
      </details>
    </section>
  );
}

function LayerTable({ plan }: { plan: Plan }) {
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="the layers">
        <table class="layers">
          <thead>
            <tr>
              <th scope="col">layers</th>
              <th scope="col">part</th>
              <th scope="col">weights or cache in</th>
              <th scope="col">prompt on</th>
              <th scope="col">answer on</th>
            </tr>
          </thead>
          <tbody>
            {plan.layers.flatMap((group) =>
              sublayers(group).map(([name, part], at) => (
                <tr class={at === 0 ? "begins" : ""}>
                  <td>{at === 0 ? (group.count === 1 ? group.first : `${group.first}–${group.first + group.count - 1}`) : ""}</td>
                  <td>{name}</td>
                  <td>{shown(part, "home")}</td>
                  <td class={`on-${mostly(part, "prefill")}`}>{shown(part, "prefill")}</td>
                  <td class={`on-${mostly(part, "decode")}`}>{shown(part, "decode")}</td>
                </tr>
              )),
            )}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Rules({ plan }: { plan: Plan }) {
  const row = (name: string, times: Times) => (
    <tr>
      <th scope="row">{name}</th>
      <td>{seconds(times.ttft_s)}</td>
      <td>{times.tpot_s === null ? "–" : rate(plan.numbers.batch / times.tpot_s)}</td>
      <td>{seconds(times.ttft_s + (times.tpot_s ?? 0) * (plan.numbers.output_tokens - 1))}</td>
    </tr>
  );
  return (
    <section>
      <h3>What simple rules and published systems would do</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="simple rules and published systems">
        <table>
          <thead>
            <tr>
              <th scope="col">placement</th>
              <th scope="col">first token</th>
              <th scope="col">tok/s</th>
              <th scope="col">whole answer</th>
            </tr>
          </thead>
          <tbody>
            {row(plan.numbers.chosen === "planned" ? "this plan" : `this plan: ${plan.numbers.chosen}`, plan.numbers)}
            {Object.entries(plan.numbers.rules).map(([name, times]) => row(name, times))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Upgrades({ explained }: { explained: Explanation }) {
  const tenth = (what: string) => (what.startsWith("launches") ? `10 % shorter ${what}` : `10 % more ${what}`);
  const all = [...explained.parts, ...explained.more.map((it) => ({ ...it, what: tenth(it.what) }))];
  const gains = all.filter((it) => it.gain > 0.005).sort((a, b) => b.gain - a.gain);
  return (
    <section>
      <h3>What limits it, and what would make it faster</h3>
      <ul>
        {explained.binding.map((it) => (
          <li>
            {it.phase === "prefill" ? "The prompt" : "Each token"}
            {it.bound_by === "chain"
              ? " keeps no part of the machine busy all the time: each task waits for the one before it."
              : ` is limited by the ${it.bound_by}.`}
          </li>
        ))}
      </ul>
      {gains.length === 0 ? (
        <p>None of the larger parts that were tried saves more than 0.5 % of the time.</p>
      ) : (
        <ul>
          {gains.map((it) => (
            <li>
              {it.what[0]!.toUpperCase() + it.what.slice(1)}: {percent(it.gain)} less time
            </li>
          ))}
        </ul>
      )}
      <details>
        <summary>The whole explanation</summary>
        <pre tabIndex={0}>{explained.text}</pre>
      </details>
    </section>
  );
}

function Command({ exported }: { exported: Exported }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard.writeText(exported.command).then(() => setCopied(true));
  const tpot = exported.nearest.tpot_s;
  return (
    <>
      <pre tabIndex={0} class="command">
        {exported.command}
      </pre>
      <button type="button" onClick={copy}>
        {copied ? "copied" : "copy"}
      </button>
      <p>
        With these options: first token after {seconds(exported.nearest.ttft_s)}
        {tpot !== null && `, ${rate(exported.nearest.batch / tpot)} tok/s`}.
      </p>
      {exported.cannot.length > 0 && (
        <details>
          <summary>What {exported.engine} cannot express</summary>
          <ul>
            {exported.cannot.map((it) => (
              <li>{it}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

export function Result(props: {
  planner: Planner;
  state: State;
  machine: MachineChoice;
  title: string;
  engines: string[];
  setEngine: (engine: string) => void;
}) {
  const { planner, state } = props;
  const asked = scenario(state, props.machine);
  const key = JSON.stringify(asked);
  const plan = useAnswer(key, (signal) => planner.plan(asked, { rank: "answer", signal }));
  const found = plan?.answer;
  const about = <T,>(ask: (plan: Plan, manner: Manner) => Promise<Answer<T>>) =>
    found === undefined ? null : (signal: AbortSignal) => ask(found, { rank: "detail", signal });
  const explained = useAnswer(key, about((plan, manner) => planner.explain(asked, plan, manner)));
  const exported = useAnswer(`${key} ${state.engine}`, about((plan, manner) => planner.export(asked, plan, state.engine, manner)));
  const roofline = useAnswer(key, about((plan, manner) => planner.roofline(asked, plan, manner)));
  if (plan === null) return <article aria-busy="true" class="result"><h2>{props.title}</h2><p role="status">planning …</p></article>;
  if (plan.answer === undefined) {
    return (
      <article class="result" data-ready={toAddress(state)}>
        <h2>{props.title}</h2>
        <Failed failure={plan.error} />
      </article>
    );
  }
  return (
    <article class="result" data-ready={toAddress(state)}>
      <h2>{props.title}</h2>
      <p>
        {plan.answer.numbers.model} on {plan.answer.numbers.machine}, {plan.answer.numbers.formats}
      </p>
      <Headline plan={plan.answer} />
      <Memories plan={plan.answer} />
      {explained?.answer && <Upgrades explained={explained.answer} />}
      {explained?.error && <Failed failure={explained.error} />}
      <section>
        <h3>Run it</h3>
        <label>
          engine{" "}
          <select value={state.engine} onChange={(event) => props.setEngine(event.currentTarget.value)}>
            {(props.engines.length > 0 ? props.engines : [state.engine]).map((engine) => (
              <option>{engine}</option>
            ))}
          </select>
        </label>
        {exported?.answer && <Command exported={exported.answer} />}
        {exported?.error && <Failed failure={exported.error} />}
      </section>
      <LayerMap plan={plan.answer} />
      {roofline?.answer && <RooflinePlot roofline={roofline.answer} />}
      <Rules plan={plan.answer} />
    </article>
  );
}
