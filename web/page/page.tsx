// The page: questions on the left, an answer for each machine beside them.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import type { Answer, Catalog } from "./planner/answers";
import { Controls } from "./controls";
import { Curves } from "./curves";
import { Planner } from "./planner/planner";
import { Failed, Result } from "./results";
import { fromAddress, toAddress, type State } from "./state";

/** Until it is known: the answer comes first. */
const UNKNOWN: Catalog = { machines: [], cpus: [], gpus: [], links: [], models: [], engines: [] };

function Page({ planner }: { planner: Planner }) {
  const [catalog, setCatalog] = useState<Answer<Catalog>>({ answer: UNKNOWN });
  useEffect(() => void planner.catalog().then(setCatalog), []);
  const known = catalog.answer ?? UNKNOWN;
  const [state, setState] = useState<State>(() => fromAddress(location.hash));
  const set = (state: State) => {
    history.replaceState(null, "", toAddress(state));
    setState(state);
  };
  useEffect(() => {
    const follow = () => setState(fromAddress(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return (
    <>
      <header>
        <h1>What runs on your machine, and how fast</h1>
        <p>
          Fulcrum places each layer on CPU or GPU and predicts the time. Everything is computed here: nothing leaves
          your machine.
        </p>
      </header>
      {catalog.error && <Failed failure={catalog.error} />}
      <main>
        <Controls catalog={known} planner={planner} state={state} set={set} />
        <div class="answers">
          <div class={`results of-${state.machines.length}`}>
            {state.machines.map((machine, at) => (
              <Result
                planner={planner}
                state={state}
                machine={machine}
                title={state.machines.length > 1 ? `Machine ${"AB"[at]}` : "The plan"}
                engines={known.engines}
                setEngine={(engine) => set({ ...state, engine })}
              />
            ))}
          </div>
          <Curves planner={planner} state={state} />
        </div>
      </main>
      <footer>
        80 %: of ten machines of these parts, eight should be in this range, if the parts' rates are as uncertain as their
        sources say.{" "}
        <a href="licences.txt">Licences</a>
      </footer>
    </>
  );
}

async function start() {
  const root = document.getElementById("page")!;
  render(<p role="status">loading the planner …</p>, root);
  render(<Page planner={await Planner.connect()} />, root);
}

void start();
