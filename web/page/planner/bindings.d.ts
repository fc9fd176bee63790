declare module "fulcrum-bindings" {
  export default function init(options: { module_or_path: WebAssembly.Module }): Promise<unknown>;
  export class Planner {
    answer(question: string): string;
    add_config(name: string, text: string): string;
    add_gguf(name: string, header: Uint8Array, length: number): string;
  }
}
declare module "*.css";
