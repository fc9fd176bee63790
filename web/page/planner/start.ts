// The questions of the first view. The build answers them, so that a visitor need not wait for the module.
import { scenario, START } from "../state";

const [machine] = START.machines;
const asked = scenario(START, machine!);

/** As the page asks them, see `planner.ts`. */
export const QUESTIONS: string[] = [
  { ask: "catalog" },
  { ask: "plan", scenario: asked },
  { ask: "explain", scenario: asked },
  { ask: "roofline", scenario: asked },
  { ask: "export", scenario: asked, engine: START.engine },
].map((question) => JSON.stringify(question));
