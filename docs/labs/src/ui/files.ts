// A user's file, parsed in the page; it never leaves it.
import { load } from "js-yaml";
import type { Config } from "../maths/config";

type Tree = Record<string, unknown>;

/** JSON lines become a list; YAML and JSON a tree. `base: NAME` is resolved against the packaged presets. */
export function parse(text: string, name: string, presets: Record<string, Config>): unknown {
  if (name.endsWith(".jsonl")) {
    return text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line) as unknown);
  }
  const tree = (name.endsWith(".json") ? JSON.parse(text) : load(text)) as Tree | null;
  if (!tree || typeof tree !== "object" || Array.isArray(tree)) throw new Error("expected groups of fields");
  const resolved = "config" in tree && typeof tree.config === "object" ? (tree.config as Tree) : tree;
  const base = resolved.base;
  if (typeof base !== "string") return resolved;
  const preset = presets[base];
  if (!preset) throw new Error(`base: ${base} is no packaged preset`);
  const merged = structuredClone(preset) as unknown as Record<string, Tree>;
  for (const [group, fields] of Object.entries(resolved)) {
    if (group !== "base") merged[group] = { ...merged[group], ...(fields as Tree) };
  }
  const schedule = resolved.scheduler as Tree | undefined;
  if (schedule && "total_steps" in schedule) merged.scheduler.total_tokens = schedule.total_tokens ?? null;
  if (schedule && "total_tokens" in schedule) merged.scheduler.total_steps = schedule.total_steps ?? null;
  return merged;
}
