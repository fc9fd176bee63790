// The questions: machine, model, formats, load.
import type { ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import type { Catalog } from "./planner/answers";
import type { Planner } from "./planner/planner";
import { count } from "./quantities";
import { KV, MODULES, OBJECTIVES, PARTS, WEIGHTS, type MachineChoice, type Parts, type State } from "./state";

function Field(props: { label: string; children: (id: string) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children(id)}
    </div>
  );
}

function Choice(props: {
  label: string;
  value: string;
  of: readonly string[];
  set: (value: string) => void;
  /** What is shown for a value. */
  words?: Record<string, string>;
}) {
  const values = props.of.includes(props.value) ? props.of : [props.value, ...props.of];
  return (
    <Field label={props.label}>
      {(id) => (
        <select id={id} value={props.value} onChange={(event) => props.set(event.currentTarget.value)}>
          {values.map((value) => (
            <option value={value}>{props.words?.[value] ?? value}</option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** What is typed into a field, and how to change it: it stays where the page is drawn anew meanwhile. */
function useTyped(value: string): [string, (text: string) => void] {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return [typed, setTyped];
}

/** A text with suggestions: any spelling that the planner knows is right. */
function Named(props: { label: string; value: string; of: { name: string; note: string }[]; set: (value: string) => void }) {
  const list = useId();
  const [typed, setTyped] = useTyped(props.value);
  return (
    <Field label={props.label}>
      {(id) => (
        <>
          <input
            id={id}
            list={list}
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
            spellcheck={false}
            autocomplete="off"
            onChange={(event) => props.set(event.currentTarget.value.trim())}
          />
          <datalist id={list}>
            {props.of.map(({ name, note }) => (
              <option value={name}>{note}</option>
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}

function Count(props: { label: string; value: number; most: number; set: (value: number) => void }) {
  const [typed, setTyped] = useTyped(String(props.value));
  const take = (text: string) => {
    const value = Math.round(Number(text));
    if (Number.isFinite(value) && value >= 1 && value <= props.most) props.set(value);
    else setTyped(String(props.value));
  };
  return (
    <Field label={props.label}>
      {(id) => (
        <input
          id={id}
          type="number"
          inputMode="numeric"
          min={1}
          max={props.most}
          step={1}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
          onChange={(event) => take(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

function MachineFields(props: { catalog: Catalog; machine: MachineChoice; set: (machine: MachineChoice) => void }) {
  const { catalog, machine, set } = props;
  const options = (parts: { name: string; summary: string }[]) =>
    parts.map(({ name, summary }) => ({ name, note: summary }));
  const kind = "named" in machine ? "a name or words" : "parts";
  const change = (kind: string) => set(kind === "parts" ? { parts: PARTS } : { named: "rtx4090-desktop" });
  return (
    <>
      <Choice label="Described by" value={kind} of={["parts", "a name or words"]} set={change} />
      {"named" in machine ? (
        <Named
          label="Machine, as RTX 4090, i7-14700K, 64 GB"
          value={machine.named}
          of={[...options(catalog.machines), ...options(catalog.gpus)]}
          set={(named) => set({ named })}
        />
      ) : (
        <PartFields catalog={catalog} parts={machine.parts} set={(parts) => set({ parts })} options={options} />
      )}
    </>
  );
}

function PartFields(props: {
  catalog: Catalog;
  parts: Parts;
  set: (parts: Parts) => void;
  options: (parts: { name: string; summary: string }[]) => { name: string; note: string }[];
}) {
  const { catalog, parts, options } = props;
  const change = (some: Partial<Parts>) => props.set({ ...parts, ...some });
  return (
    <>
      <Named label="GPU (empty: none)" value={parts.gpu} of={options(catalog.gpus)} set={(gpu) => change({ gpu })} />
      <Choice
        label="How many GPUs"
        value={String(parts.gpus)}
        of={["1", "2", "4", "8"]}
        set={(gpus) => change({ gpus: Number(gpus) })}
      />
      <Choice
        label="Link to the GPU"
        value={parts.link}
        of={catalog.links.map(({ name }) => name).filter((name) => /pcie|thunderbolt|oculink/.test(name))}
        set={(link) => change({ link })}
      />
      <Named label="CPU" value={parts.cpu} of={options(catalog.cpus)} set={(cpu) => change({ cpu })} />
      <Count label="RAM, GB" value={parts.ram} most={16384} set={(ram) => change({ ram })} />
      <Choice label="Modules" value={parts.modules} of={MODULES} set={(modules) => change({ modules })} />
    </>
  );
}

/** A model that is in no list: a `config.json`, or a GGUF file's first megabytes. */
function OwnModel(props: { planner: Planner; added: (name: string) => void }) {
  const [message, setMessage] = useState({ text: "", wrong: false });
  const [url, setUrl] = useState("");
  const gguf = async (name: string, part: (bytes: number) => Promise<[ArrayBuffer, number]>) => {
    // The tokenizer's words stand in the header, so it may be long.
    for (const megabytes of [8, 32, 128]) {
      const [header, length] = await part(megabytes << 20);
      const read = await props.planner.addGguf(name, new Uint8Array(header), length);
      if (read.answer !== undefined) return told(name, undefined);
      if (length <= megabytes << 20 || megabytes === 128) return told(name, read.error.text);
    }
  };
  const told = (name: string, wrong: string | undefined) => {
    setMessage({ text: wrong ?? `${name} was read`, wrong: wrong !== undefined });
    if (wrong === undefined) props.added(name);
  };
  const file = async (chosen: File | undefined) => {
    if (chosen === undefined) return;
    const name = chosen.name.replace(/\.(gguf|json)$/i, "");
    if (/\.gguf$/i.test(chosen.name)) {
      return gguf(name, async (size) => [await chosen.slice(0, size).arrayBuffer(), chosen.size]);
    }
    const read = await props.planner.addConfig(name, await chosen.text());
    told(name, read.error?.text);
  };
  const address = async () => {
    const name = url.split("/").pop()?.split("?")[0]?.replace(/\.(gguf|json)$/i, "") || "model";
    try {
      if (!/\.gguf(\?|$)/i.test(url)) {
        const read = await props.planner.addConfig(name, await (await fetch(url)).text());
        return told(name, read.error?.text);
      }
      return await gguf(name, async (size) => {
        const got = await fetch(url, { headers: { Range: `bytes=0-${size - 1}` } });
        const whole = /\/(\d+)$/.exec(got.headers.get("content-range") ?? "")?.[1];
        if (got.status !== 206 || whole === undefined) throw new Error(`the server answers ${got.status} to a range`);
        return [await got.arrayBuffer(), Number(whole)];
      });
    } catch (error) {
      told(name, `${url} cannot be read: ${String(error)}`);
    }
  };
  return (
    <details class="own">
      <summary>A model of your own</summary>
      <Field label="config.json or GGUF file">
        {(id) => <input id={id} type="file" accept=".json,.gguf" onChange={(it) => void file(it.currentTarget.files?.[0])} />}
      </Field>
      <Field label="or its address">
        {(id) => (
          <span class="pair">
            <input id={id} type="url" value={url} onInput={(it) => setUrl(it.currentTarget.value)} />
            <button type="button" onClick={() => void address()} disabled={url === ""}>
              read
            </button>
          </span>
        )}
      </Field>
      <p role="status" class={message.wrong ? "failed" : ""}>
        {message.text}
      </p>
    </details>
  );
}

export function Controls(props: { catalog: Catalog; planner: Planner; state: State; set: (state: State) => void }) {
  const { catalog, state, set } = props;
  const change = (some: Partial<State>) => set({ ...state, ...some });
  const machine = (at: number, chosen: MachineChoice) =>
    change({ machines: state.machines.map((it, index) => (index === at ? chosen : it)) });
  const models = catalog.models.map(({ name, parameters, active_parameters }) => ({
    name,
    note: parameters === active_parameters ? count(parameters) : `${count(parameters)}, ${count(active_parameters)} active`,
  }));
  return (
    <form class="controls" onSubmit={(event) => event.preventDefault()}>
      {state.machines.map((it, at) => (
        <fieldset>
          <legend>{state.machines.length > 1 ? `Machine ${"AB"[at]}` : "Machine"}</legend>
          <MachineFields catalog={catalog} machine={it} set={(chosen) => machine(at, chosen)} />
        </fieldset>
      ))}
      {state.machines.length === 1 ? (
        <button type="button" onClick={() => change({ machines: [...state.machines, state.machines[0]!] })}>
          Compare with a second machine
        </button>
      ) : (
        <button type="button" onClick={() => change({ machines: state.machines.slice(0, 1) })}>
          Leave machine B out
        </button>
      )}
      <fieldset>
        <legend>Model</legend>
        <Named label="Name" value={state.model} of={models} set={(model) => change({ model })} />
        <Choice label="Weights" value={state.weights} of={WEIGHTS} set={(weights) => change({ weights })} />
        <Choice label="KV cache" value={state.kv} of={KV} set={(kv) => change({ kv })} />
        <OwnModel planner={props.planner} added={(model) => change({ model })} />
      </fieldset>
      <fieldset>
        <legend>Load</legend>
        <Count label="Prompt tokens" value={state.prompt} most={4194304} set={(prompt) => change({ prompt })} />
        <Count label="Answer tokens" value={state.output} most={1048576} set={(output) => change({ output })} />
        <Count label="Sequences at once" value={state.batch} most={4096} set={(batch) => change({ batch })} />
        <Choice label="Best at" value={state.objective} of={Object.keys(OBJECTIVES)} words={OBJECTIVES} set={(objective) => change({ objective })} />
      </fieldset>
    </form>
  );
}
