// The answer for one machine.
import { useEffect, useState } from "preact/hooks";
import type { Answer, Explanation, Exported, Failure, Home, LayerGroup, Plan, Sublayer, Times } from "./answers";
import type { Manner, Planner } from "./planner";
import { bytes, percent, rate, seconds } from "./quantities";
import { RooflinePlot } from "./roofline";
import { scenario, toAddress, type MachineChoice, type State } from "./state";

/** An answer to a question that is asked anew when `key` changes. */
export function useAnswer<T>(key: string, ask: ((manner: Manner) => Promise<Answer<T>>) | null): Answer<T> | null {
  const [answered, setAnswered] = useState<{ key: string; answer: Answer<T> } | null>(null);
  useEffect(() => {
    const asking = new AbortController();
    const { signal } = asking;
    if (ask !== null) void ask({ signal }).then((answer) => signal.aborted || setAnswered({ key, answer }));
    return () => asking.abort();
  }, [key, ask === null]);
  return answered?.key === key ? answered.answer : null;
}

export function Failed({ failure }: { failure: Failure }) {
  return (
    <div class="failed" role="alert">
      <strong>{failure.kind === "infeasible" ? "Nothing fits." : "This cannot be answered."}</strong> {failure.text}
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
        <dd class="band">{band}</dd>
      </div>
      <div>
        <dt>first token after</dt>
        <dd>
          <b data-figure="ttft">{seconds(numbers.ttft_s)}</b>
        </dd>
        <dd class="band">{first}</dd>
      </div>
      <div>
        <dt>energy of a token</dt>
        <dd>
          <b>{numbers.energy_per_token_j === null ? "–" : `${rate(numbers.energy_per_token_j)} J`}</b>
        </dd>
        <dd class="band">devices, waiting included</dd>
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
              {name}: {bytes(total)} of {bytes(holds)}
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

const SUBLAYERS = ["qkv", "attention", "out", "ffn_up", "ffn_down", "experts"];

/** Where the larger part of something is. */
const mostly = (home: Home): string =>
  typeof home === "string" ? home : Object.entries(home).sort((a, b) => b[1] - a[1])[0]?.[0] ?? "";

const shown = (home: Home): string =>
  typeof home === "string"
    ? home
    : Object.entries(home)
        .map(([name, share]) => `${name} ${percent(share)}`)
        .join(" + ");

function sublayers(group: LayerGroup): [string, Sublayer][] {
  const known = Object.entries(group).filter((it): it is [string, Sublayer] => typeof it[1] === "object" && "home" in it[1]);
  const order = (name: string) => (SUBLAYERS.indexOf(name) + 1 || 99);
  return known.sort((a, b) => order(a[0]) - order(b[0]));
}

/** A column for each layer, a row for each part: where it computes, and below, thin, where its weights lie. */
function LayerPicture({ plan }: { plan: Plan }) {
  const names = [...new Set(plan.layers.flatMap((group) => sublayers(group).map(([name]) => name)))];
  const layers = plan.layers.reduce((sum, group) => sum + group.count, 0);
  const places = [...new Set(plan.layers.flatMap((group) => sublayers(group).flatMap(([, it]) => [mostly(it.decode), mostly(it.home)])))];
  const tone = (place: string) => `place-${places.indexOf(place) % 5}`;
  const cells = (name: string, row: number) =>
    plan.layers.map((group) => {
      const part = sublayers(group).find(([known]) => known === name)?.[1];
      if (part === undefined) return null;
      return (
        <g>
          <rect class={tone(mostly(part.decode))} x={group.first} y={row * 10} width={group.count} height="6" />
          <rect class={tone(mostly(part.home))} x={group.first} y={row * 10 + 6} width={group.count} height="2" />
        </g>
      );
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
        {places.map((place) => (
          <span>
            <svg viewBox="0 0 1 1" aria-hidden="true">
              <rect class={tone(place)} width="1" height="1" />
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
                  <td>{shown(part.home)}</td>
                  <td class={`on-${mostly(part.prefill)}`}>{shown(part.prefill)}</td>
                  <td class={`on-${mostly(part.decode)}`}>{shown(part.decode)}</td>
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
    </tr>
  );
  return (
    <section>
      <h3>Beside simple rules</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="beside simple rules">
        <table>
          <thead>
            <tr>
              <th scope="col">placement</th>
              <th scope="col">first token</th>
              <th scope="col">tok/s</th>
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
  const all = [...explained.parts, ...explained.more.map((it) => ({ ...it, what: `10 % more ${it.what}` }))];
  const gains = all.filter((it) => it.gain > 0.005).sort((a, b) => b.gain - a.gain);
  return (
    <section>
      <h3>What binds, and what more would bring</h3>
      <ul>
        {explained.binding.map((it) => (
          <li>
            {it.phase === "prefill" ? "The prompt" : "Each token"} is bound by {it.bound_by === "chain" ? "the chain of its tasks" : it.bound_by}.
          </li>
        ))}
      </ul>
      {gains.length === 0 ? (
        <p>Nothing that was tried brings more than 0.5 %.</p>
      ) : (
        <ul>
          {gains.map((it) => (
            <li>
              {it.what}: {percent(it.gain)} less time
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
  const plan = useAnswer(key, (manner) => planner.plan(asked, manner));
  const found = plan?.answer !== undefined;
  const explained = useAnswer(key, found ? (manner) => planner.explain(asked, manner) : null);
  const roofline = useAnswer(key, found ? (manner) => planner.roofline(asked, manner) : null);
  const exported = useAnswer(`${key} ${state.engine}`, found ? (manner) => planner.export(asked, state.engine, manner) : null);
  if (plan === null) return <article aria-busy="true" class="result"><h2>{props.title}</h2><p role="status">planning …</p></article>;
  if (plan.answer === undefined) return <article class="result"><h2>{props.title}</h2><Failed failure={plan.error} /></article>;
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
            {props.engines.map((engine) => (
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
