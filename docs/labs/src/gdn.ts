// Lab: what a gated recurrence remembers. One head, five keys, five values; both rules; recurrent against chunked.
import { html, svg, type TemplateResult } from "lit";
import { deltaChunked, deltaRecurrent, distance, linearChunked, linearRecurrent, type Matrix, type Result } from "./maths/recurrence";
import { Lab, asConfig } from "./ui/base";

const KEYS = ["cat", "dog", "owl", "fox"];
const VALUES = ["red", "blue", "gold", "grey"];
const STORY: [string, string][] = [
  ["cat", "red"], ["dog", "blue"], ["owl", "gold"], ["cat", "grey"],
  ["fox", "red"], ["dog", "gold"], ["owl", "red"], ["cat", "blue"],
];

class GdnLab extends Lab {
  protected defaults = { rule: "delta", t: 4, keep: 0.95, beta: 1, overlap: 0, chunk: 4 };
  private heading = "";

  protected override get waits(): boolean {
    return false;
  }

  protected override settle(): void {
    this.choose("rule", ["delta", "linear"]);
    this.clamp("t", 1, STORY.length);
    this.clamp("keep", 0.5, 1);
    this.clamp("beta", 0, 1);
    this.clamp("overlap", 0, 0.9);
    this.clamp("chunk", 1, STORY.length);
  }

  protected override advance(): boolean {
    const t = this.get("t") % STORY.length;
    this.set("t", t + 1);
    return t + 1 < STORY.length;
  }

  protected override finish(): void {
    this.set("t", STORY.length);
  }

  protected override accept(file: unknown): string {
    const model = asConfig(file).model;
    this.set("rule", model.gdn_recurrence === "gated_delta" ? "delta" : "linear");
    const heads = Math.floor(model.gdn_d_inner / model.gdn_headdim);
    this.heading = `your model keeps ${heads} such states of ${model.gdn_d_state} × ${model.gdn_headdim} per GDN layer and uses the rule ${model.gdn_recurrence}.`;
    return this.heading;
  }

  /** Unit keys whose pairwise product is `overlap`. */
  private keys(): Matrix {
    const overlap = this.get("overlap");
    const n = KEYS.length;
    const [common, own] = [Math.sqrt(overlap / n), Math.sqrt(1 - overlap)];
    const rows = KEYS.map((_, i) => KEYS.map((_, j) => (i === j ? own : 0) + common));
    return rows.map((row) => {
      const norm = Math.hypot(...row);
      return row.map((x) => x / norm);
    });
  }

  private run(chunk: number | null): Result {
    const keys = this.keys();
    const k = STORY.map(([key]) => keys[KEYS.indexOf(key)]);
    const v = STORY.map(([, value]) => VALUES.map((name) => Number(name === value)));
    const keep = Math.max(this.get("keep"), 1e-9);
    const ones = STORY.map(() => 1);
    if (this.state.rule === "linear") {
      const rates = KEYS.map(() => -Math.log(keep));
      return chunk === null ? linearRecurrent(v, k, k, ones, rates) : linearChunked(v, k, k, ones, rates, chunk);
    }
    const beta = STORY.map(() => this.get("beta"));
    const alpha = STORY.map(() => Math.log(keep));
    return chunk === null ? deltaRecurrent(k, k, v, beta, alpha) : deltaChunked(k, k, v, beta, alpha, chunk);
  }

  override render(): TemplateResult {
    const t = this.get("t");
    const delta = this.state.rule === "delta";
    const plain = this.run(null);
    const chunked = this.run(this.get("chunk"));
    const error = distance(plain.o, chunked.o);
    const keys = this.keys();
    const state = plain.states[t - 1];
    const [key, value] = STORY[t - 1];
    const answers = KEYS.map((_, i) => VALUES.map((_, d) => state.reduce((sum, row, s) => sum + row[d] * keys[i][s], 0)));
    const own = answers[KEYS.indexOf(key)];
    const best = VALUES[own.indexOf(Math.max(...own))];
    const old = STORY.slice(0, t - 1).filter(([name]) => name === key);
    this.dataset.difference = error.toExponential(1);
    this.dataset.answer = best;
    this.dataset.t = String(t);
    const controls = html`
      ${this.select("rule", "Update rule", [["delta", "gated delta: overwrite"], ["linear", "gated linear: add"]])}
      ${this.slider("t", "Token", 1, STORY.length, 1, (x) => `${x} of ${STORY.length}`)}
      ${this.slider("keep", "Kept per token", 0.5, 1, 0.01, (x) => x.toFixed(2))}
      ${delta ? this.slider("beta", "Write strength β", 0, 1, 0.05, (x) => x.toFixed(2)) : ""}
      ${this.slider("overlap", "Overlap of keys", 0, 0.9, 0.05, (x) => x.toFixed(2))}
      ${this.slider("chunk", "Chunk size", 1, STORY.length, 1)}
      <div class="buttons">${this.playButton("Play the story", 700)}${this.resetButton()}</div>
      ${this.file("Your config (YAML, JSON)")}
    `;
    const keep = this.get("keep").toFixed(2);
    const formula = delta
      ? `S ← ${keep}·S;  S ← S + ${this.get("beta").toFixed(2)}·k("${key}")·(v("${value}") − Sᵀk("${key}"))ᵀ`
      : `H ← ${keep}·H + k("${key}")·v("${value}")ᵀ`;
    const said = html`After token ${t} (“the ${key} is ${value}”), asking for <b>${key}</b> answers
      <b>${best}</b> with ${Math.max(...own).toFixed(2)}${
        old.length
          ? delta
            ? html`: the delta rule first takes out what ${key} held (${old.at(-1)![1]}), then writes.`
            : html`: adding keeps the earlier ${old.at(-1)![1]} beside it (${own[VALUES.indexOf(old.at(-1)![1])].toFixed(2)}).`
          : "."
      }
      In chunks of ${this.get("chunk")} the outputs are the same: largest difference
      <span class="key">${error < 1e-15 ? "0" : error.toExponential(1)}</span>.`;
    return this.frame(
      controls,
      html`${this.draw(answers, plain, t)}
        <p class="formula" tabindex="0" role="group" aria-label="Update with the present values">${formula}</p>`,
      said,
      this.table(
        "The state as numbers",
        ["asked for", ...VALUES],
        KEYS.map((name, i) => [name, ...answers[i].map((x) => x.toFixed(4))]),
      ),
    );
  }

  private draw(answers: Matrix, plain: Result, t: number): TemplateResult {
    const wide = this.width - 34;
    const chunk = this.get("chunk");
    const cell = wide / STORY.length;
    const story = STORY.map(([key, value], i) => {
      const now = i === t - 1;
      const shade = Math.floor(i / chunk) % 2 ? "var(--hymo-gdn-soft)" : "transparent";
      return svg`<g>
        <rect x=${i * cell} y="18" width=${cell} height="44" fill=${shade}></rect>
        <rect x=${i * cell + 2} y="20" width=${cell - 4} height="40" rx="4" fill="none" stroke=${now ? "var(--hymo-mla)" : "var(--hymo-line)"} stroke-width=${now ? 3 : 1}></rect>
        <text x=${i * cell + cell / 2} y="37" text-anchor="middle" opacity=${i < t ? 1 : 0.75}>${key}</text>
        <text class="soft" x=${i * cell + cell / 2} y="53" text-anchor="middle">${value}</text>
      </g>`;
    });
    const narrow = wide < 480;
    const left = 46;
    const gridWide = narrow ? wide - left : Math.min(300, wide * 0.48);
    const w = gridWide / VALUES.length;
    const h = 38;
    const top = 106;
    const heat = answers.flatMap((row, i) =>
      row.map((x, d) => svg`<g>
        <rect x=${left + d * w + 1} y=${top + i * h + 1} width=${w - 2} height=${h - 2} rx="3" fill=${x >= 0 ? "var(--hymo-gdn)" : "var(--hymo-mla)"} fill-opacity=${Math.min(1, Math.abs(x)) * 0.9} stroke="var(--hymo-line)"></rect>
        <text x=${left + d * w + w / 2} y=${top + i * h + h / 2 + 4} text-anchor="middle" style=${Math.abs(x) > 0.55 ? "fill:var(--hymo-panel)" : ""}>${x.toFixed(2)}</text>
      </g>`),
    );
    const plotLeft = narrow ? left : left + gridWide + 50;
    const plotTop = narrow ? top + KEYS.length * h + 46 : top;
    const plotWide = narrow ? wide - left : wide - plotLeft - 4;
    const plotHigh = KEYS.length * h;
    const asked = STORY[t - 1][0];
    const keys = this.keys();
    const x = (i: number) => plotLeft + (plotWide * i) / (STORY.length - 1);
    const y = (value: number) => plotTop + plotHigh - (plotHigh * Math.max(-0.2, Math.min(1.2, value)) + 0.2 * plotHigh) / 1.4;
    const dash = ["", "6 3", "2 3", "8 3 2 3"];
    const hue = ["var(--hymo-mla)", "var(--hymo-third)", "var(--hymo-gdn)", "var(--hymo-soft)"];
    const lines = VALUES.map((name, d) => {
      const points = plain.states.map((s) => s.reduce((sum, row, j) => sum + row[d] * keys[KEYS.indexOf(asked)][j], 0));
      return svg`<polyline fill="none" stroke=${hue[d]} stroke-width="2" stroke-dasharray=${dash[d]} points=${points.map((p, i) => `${x(i)},${y(p)}`).join(" ")}></polyline>
        <line x1=${plotLeft + (d % 2) * 70} x2=${plotLeft + (d % 2) * 70 + 20} y1=${plotTop + plotHigh + 16 + 16 * Math.floor(d / 2)} y2=${plotTop + plotHigh + 16 + 16 * Math.floor(d / 2)} stroke=${hue[d]} stroke-width="2" stroke-dasharray=${dash[d]}></line>
        <text x=${plotLeft + (d % 2) * 70 + 24} y=${plotTop + plotHigh + 20 + 16 * Math.floor(d / 2)}>${name}</text>`;
    });
    const high = plotTop + plotHigh + 44;
    return html`<svg width=${wide} height=${high} viewBox="0 0 ${wide} ${high}" role="img" aria-label=${`The story of ${STORY.length} writes in chunks of ${chunk}; what the state answers for each key after token ${t}; the answers for ${asked} over time`}>
      <text class="soft" x="0" y="12">writes, token by token; shading: chunks</text>
      ${story}
      <text class="soft" x=${left} y="86">answer to each key after token ${t}</text>
      ${VALUES.map((name, d) => svg`<text class="soft" x=${left + d * w + w / 2} y="102" text-anchor="middle">${name}</text>`)}
      ${KEYS.map((name, i) => svg`<text x="0" y=${top + i * h + h / 2 + 4}>${name}?</text>`)}
      ${heat}
      <text class="soft" x=${plotLeft} y=${plotTop - 8}>answers to “${asked}?” over time</text>
      <line class="axis" x1=${plotLeft} x2=${plotLeft + plotWide} y1=${y(0)} y2=${y(0)}></line>
      <line class="axis" x1=${plotLeft} x2=${plotLeft + plotWide} y1=${y(1)} y2=${y(1)} stroke-dasharray="2 4"></line>
      <text class="soft" x=${plotLeft + plotWide} y=${y(1) - 4} text-anchor="end">1</text>
      <line x1=${x(t - 1)} x2=${x(t - 1)} y1=${plotTop} y2=${plotTop + plotHigh} stroke="var(--hymo-mla)" stroke-width="1"></line>
      ${lines}
    </svg>`;
  }
}

customElements.define("hymo-gdn-lab", GdnLab);
