// Lab: drafts, their verification, and what they save. The model is a table of letter pairs from the packaged text.
import { css, html, svg, type CSSResultGroup, type TemplateResult } from "lit";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import { mtpTensors, total, usedPerToken } from "./maths/accounting";
import { random } from "./maths/router";
import { argmax, drawBy, expectedTokens, judge, tempered } from "./maths/speculation";
import { Lab, data, number } from "./ui/base";

interface Bigrams {
  symbols: string;
  counts: number[][];
}

interface Pass {
  drafts: number[];
  probabilities: number[];
  kept: number[];
  own: number;
  proposed: number[];
  accepted: number[];
}

const PASSES = 40;
const SPACE = "␣";

class MtpLab extends Lab {
  protected defaults = { passes: 12, temperature: 0.5, heads: "sighted", depth: 2, cost: 0.1, seed: 1 };
  private bigrams?: Bigrams;
  private rows: number[][] = [];
  private unigram: number[] = [];
  private measured: number[] = [];

  protected override async prepare(): Promise<void> {
    this.bigrams = await data<Bigrams>("bigrams");
    const { counts } = this.bigrams;
    this.rows = counts.map((row) => {
      const sum = row.reduce((a, b) => a + b, 0);
      return row.map((n) => n / sum);
    });
    const columns = counts[0].map((_, j) => counts.reduce((sum, row) => sum + row[j], 0));
    const all = columns.reduce((a, b) => a + b, 0);
    this.unigram = columns.map((n) => n / all);
  }

  protected override settle(): void {
    this.clamp("passes", 0, PASSES);
    this.clamp("temperature", 0, 1.5);
    this.choose("heads", ["sighted", "blind"]);
    this.clamp("depth", 1, 4);
    this.clamp("cost", 0, 1);
    this.clamp("seed", 1, 99);
  }

  protected override advance(): boolean {
    const next = this.get("passes") >= PASSES ? 0 : this.get("passes") + 1;
    this.set("passes", next);
    return next < PASSES;
  }

  protected override finish(): void {
    this.set("passes", PASSES);
  }

  protected override accept(file: unknown): string {
    const found: number[] = [];
    const walk = (value: unknown): void => {
      if (!value || typeof value !== "object") return;
      for (const [key, inner] of Object.entries(value)) {
        const match = /^acceptance_(\d+)$/.exec(key);
        if (match && typeof inner === "number") found[Number(match[1]) - 1] = inner;
        else walk(inner);
      }
    };
    walk(Array.isArray(file) ? file.at(-1) : file);
    if (!found.length) throw new Error("no acceptance_1 in it: load what `hymo eval RUN --json` prints, or a run's metrics.jsonl");
    this.measured = found;
    return `measured acceptance ${found.map((a) => a.toFixed(3)).join(", ")}: ${expectedTokens(found).toFixed(2)} tokens per pass expected.`;
  }

  private generate(): { text: { id: number; drafted: boolean }[]; passes: Pass[] } {
    const uniform = random(this.get("seed"));
    const p = (previous: number) => tempered(this.rows[previous], this.get("temperature"));
    let last = this.bigrams!.symbols.indexOf(" ");
    last = drawBy(p(last), uniform());
    const text = [{ id: last, drafted: false }];
    const passes: Pass[] = [];
    for (let i = 0; i < this.get("passes"); i++) {
      const drafts: number[] = [];
      for (let d = 0; d < this.get("depth"); d++) {
        drafts.push(this.state.heads === "sighted" ? argmax(this.rows[drafts.at(-1) ?? last]) : argmax(this.unigram));
      }
      const rows = [last, ...drafts].map(p);
      const found = judge(rows, drafts, uniform);
      passes.push({ drafts, probabilities: drafts.map((x, d) => rows[d][x]), ...found });
      text.push(...found.kept.map((id) => ({ id, drafted: true })), { id: found.own, drafted: false });
      last = found.own;
    }
    return { text, passes };
  }

  override render(): TemplateResult {
    if (!this.presets || !this.bigrams) return this.frame(html``, html``, "");
    const { text, passes } = this.generate();
    const depth = this.get("depth");
    const proposed = Array.from({ length: depth }, (_, d) => passes.reduce((sum, p) => sum + p.proposed[d], 0));
    const accepted = Array.from({ length: depth }, (_, d) => passes.reduce((sum, p) => sum + p.accepted[d], 0));
    const acceptance = proposed.map((n, d) => (n ? accepted[d] / n : 0));
    const produced = passes.reduce((sum, p) => sum + p.kept.length + 1, 0);
    const perPass = passes.length ? produced / passes.length : 1;
    const cost = 1 + depth * this.get("cost");
    const m = this.presets.presets.hymo_750m.model;
    const share = (m.vocab_size * m.dim + total(mtpTensors(m))) / usedPerToken(m, false);
    this.dataset.perpass = perPass.toFixed(3);
    this.dataset.text = text.map((t) => this.bigrams!.symbols[t.id]).join("");
    const letter = (id: number) => (this.bigrams!.symbols[id] === " " ? SPACE : this.bigrams!.symbols[id]);
    const controls = html`
      ${this.slider("passes", "Passes", 0, PASSES, 1)}
      ${this.slider("temperature", "Temperature", 0, 1.5, 0.05, (x) => x.toFixed(2))}
      ${this.select("heads", "The heads see", [["sighted", "the letter before"], ["blind", "nothing"]])}
      ${this.slider("depth", "Drafts per pass", 1, 4, 1)}
      ${this.slider("cost", "Cost of a draft, in passes", 0, 1, 0.05, (x) => x.toFixed(2))}
      ${this.slider("seed", "Seed", 1, 99, 1)}
      <div class="buttons">${this.playButton("Play passes", 500)}${this.resetButton()}</div>
      ${this.file("Your eval JSON")}
    `;
    const last = passes.at(-1);
    const figure = html`
      <p class="text" aria-label="The text so far; accepted drafts are underlined">
        ${text.map((t) => html`<span class=${t.drafted ? "drafted" : "own"}>${letter(t.id)}</span>`)}<span class="cursor" aria-hidden="true"></span>
      </p>
      ${last
        ? html`<div class="pass" role="group" aria-label="The last pass">
            ${last.drafts.map((x, d) => {
              const judged = last.proposed[d] > 0;
              const kept = last.accepted[d] > 0;
              return html`<div class="draft ${judged ? (kept ? "kept" : "rejected") : "skipped"}">
                <span class="big">${letter(x)}</span>
                <span>draft ${d + 1}, p = ${last.probabilities[d].toFixed(2)}</span>
                <span>${judged ? (kept ? "✓ accepted" : "✗ rejected") : "– not judged"}</span>
              </div>`;
            })}
            <div class="draft own-token"><span class="big">${letter(last.own)}</span><span>the model's own</span><span>always one</span></div>
          </div>`
        : html`<p>No pass yet.</p>`}
      ${this.draw(acceptance, perPass, cost)}`;
    const said = html`${number(passes.length)} passes gave ${number(produced)} letters: <b>${perPass.toFixed(2)} per pass</b>, acceptance
      ${acceptance.map((a) => a.toFixed(2)).join(", ")} by depth. With drafts at ${this.get("cost").toFixed(2)} passes each that is
      <b>${(perPass / cost).toFixed(2)} times</b> the speed of one letter per pass, if a pass over several tokens costs as much as one over a single token.
      In the flagship, one draft multiplies ${(100 * share).toFixed(0)} % of the parameters that a plain token does.`;
    return this.frame(
      controls,
      figure,
      said,
      this.table(
        "Passes as numbers",
        ["pass", "drafts", "p of each", "kept", "own"],
        passes.map((p, i) => [i + 1, p.drafts.map(letter).join(" "), p.probabilities.map((x) => x.toFixed(3)).join(" "), p.kept.length, letter(p.own)]),
      ),
    );
  }

  private draw(acceptance: number[], perPass: number, cost: number): TemplateResult {
    const wide = this.width - 34;
    const [left, high] = [34, 150];
    const depth = this.get("depth");
    const x = scaleLinear([0, 1], [left, wide - 10]);
    const y = scaleLinear([0, depth + 1], [high, 30]);
    const grid = Array.from({ length: 41 }, (_, i) => i / 40);
    const curve = (f: (a: number) => number) => line<number>().x((a) => x(a)).y((a) => y(f(a)))(grid) ?? "";
    const expected = (a: number) => expectedTokens(Array.from({ length: depth }, () => a));
    const inverse = grid.reduce((best, a) => (Math.abs(expected(a) - perPass) < Math.abs(expected(best) - perPass) ? a : best), 0);
    const own = this.measured.length ? expectedTokens(this.measured.slice(0, depth)) : 0;
    return html`<svg width=${wide} height=${high + 38} role="img" aria-label=${`Expected tokens per pass by acceptance, with ${depth} drafts; here ${perPass.toFixed(2)}`}>
      ${Array.from({ length: depth + 2 }, (_, n) => svg`<line class="axis" x1=${left} x2=${wide - 10} y1=${y(n)} y2=${y(n)}></line><text class="soft" x=${left - 8} y=${y(n) + 4} text-anchor="end">${n}</text>`)}
      ${[0, 0.5, 1].map((a) => svg`<text class="soft" x=${x(a)} y=${high + 16} text-anchor=${a === 1 ? "end" : "middle"}>${a}</text>`)}
      <text class="soft" x=${(left + wide) / 2} y=${high + 32} text-anchor="middle">acceptance of each draft</text>
      <path d=${curve(expected)} fill="none" stroke="var(--hymo-gdn)" stroke-width="2"></path>
      <path d=${curve((a) => expected(a) / cost)} fill="none" stroke="var(--hymo-mla)" stroke-width="2" stroke-dasharray="6 3"></path>
      <circle cx=${x(inverse)} cy=${y(perPass)} r="5" fill="var(--hymo-gdn)"></circle>
      ${own ? svg`<rect x=${x(this.measured[0]) - 5} y=${y(own) - 5} width="10" height="10" fill="var(--hymo-third)"></rect>` : ""}
      <text class="soft" x="0" y="12">tokens per pass (line) and speed-up (dashed)</text>
    </svg>
    <span hidden>${acceptance.length}</span>`;
  }

  static override styles: CSSResultGroup = [
    Lab.styles,
    css`
      .text { font-family: var(--md-code-font-family, monospace); font-size: 19px; line-height: 1.7; margin: 0 0 12px; min-height: 2em; overflow-wrap: anywhere; }
      .drafted { color: var(--hymo-gdn); text-decoration: underline; text-underline-offset: 4px; text-decoration-thickness: 2px; }
      .cursor { border-left: 2px solid var(--hymo-mla); margin-left: 2px; }
      .pass { display: grid; grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); gap: 8px; margin-bottom: 14px; }
      .draft { display: flex; flex-direction: column; border: 2px solid var(--hymo-line); border-radius: 6px; padding: 6px 10px; font-size: 13px; }
      .draft.kept { border-color: var(--hymo-gdn); }
      .draft.rejected { border-color: var(--hymo-bad); border-style: dashed; }
      .draft.skipped { border-style: dotted; color: var(--hymo-soft); }
      .draft.own-token { border-color: var(--hymo-ink); }
      .big { font-family: var(--md-code-font-family, monospace); font-size: 22px; line-height: 1.2; }
    `,
  ];
}

customElements.define("hymo-mtp-lab", MtpLab);
