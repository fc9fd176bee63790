// The page: questions on the left, an answer for each machine beside them.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import type { Catalog, Failure } from "./answers";
import { Controls } from "./controls";
import { Curves } from "./curves";
import { Planner } from "./planner";
import { Failed, Result } from "./results";
import { fromAddress, toAddress, type State } from "./state";

function Page({ planner, catalog }: { planner: Planner; catalog: Catalog }) {
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
      <main>
        <Controls catalog={catalog} planner={planner} state={state} set={set} />
        <div class="answers">
          <div class={`results of-${state.machines.length}`}>
            {state.machines.map((machine, at) => (
              <Result
                planner={planner}
                state={state}
                machine={machine}
                title={state.machines.length > 1 ? `Machine ${"AB"[at]}` : "The plan"}
                engines={catalog.engines}
                setEngine={(engine) => set({ ...state, engine })}
              />
            ))}
          </div>
          <Curves planner={planner} state={state} />
        </div>
      </main>
      <footer>
        Bands hold 80 % of such times where the parts' rates are as uncertain as they say.{" "}
        <a href="licences.txt">Licences</a>
      </footer>
    </>
  );
}

async function start() {
  const root = document.getElementById("page")!;
  render(<p role="status">loading the planner …</p>, root);
  const planner = await Planner.connect();
  const catalog = await planner.catalog();
  const failure: Failure | undefined = catalog.error;
  render(failure ? <Failed failure={failure} /> : <Page planner={planner} catalog={catalog.answer!} />, root);
}

void start();
