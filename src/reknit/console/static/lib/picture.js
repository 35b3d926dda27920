// A picture of things and ties that arranges itself, with d3-force. It moves a little, unless somebody prefers no motion.

import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from "../vendor/d3-force.js";
import { html, useEffect, useRef, useState } from "./html.js";

const WIDTH = 960, HEIGHT = 480, MARGIN = 60;
const RADII = { node: 17, gateway: 12, pipeline: 12, bridge: 11, group: 12, clients: 11 };
const STILL_TICKS = 260;

export function Picture({ things, ties, chosen, onChoose }) {
  const places = useRef(new Map());
  const simulation = useRef(null);
  const [, draw] = useState(0);
  const shape = things.map((one) => one.id).join("\n") + ties.map((one) => `${one.source}>${one.target}`).join("\n");
  useEffect(() => {
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const nodes = things.map((one, at) => {
      const known = places.current.get(one.id);
      const angle = (2 * Math.PI * at) / things.length;
      const radius = one.state === "here" ? 0 : 150;
      return known ?? { id: one.id, x: WIDTH / 2 + 1.6 * radius * Math.cos(angle), y: HEIGHT / 2 + radius * Math.sin(angle) };
    });
    nodes.forEach((one, at) => Object.assign(one, things[at].state === "here" ? { fx: WIDTH / 2, fy: HEIGHT / 2 } : {}));
    places.current = new Map(nodes.map((one) => [one.id, one]));
    const links = ties.map(({ source, target }) => ({ source, target }));
    simulation.current?.stop();
    const one = forceSimulation(nodes)
      .force("tie", forceLink(links).id((node) => node.id).distance((tie) => (tie.target.id.startsWith("node:") ? 230 : 150)).strength(0.5))
      .force("apart", forceManyBody().strength(-900))
      .force("room", forceCollide(58))
      .force("x", forceX(WIDTH / 2).strength(0.02))
      .force("y", forceY(HEIGHT / 2).strength(0.06))
      .alphaDecay(0.03)
      .velocityDecay(0.5);
    const within = () => {
      for (const node of nodes) {
        node.x = Math.max(MARGIN, Math.min(WIDTH - MARGIN, node.x));
        node.y = Math.max(40, Math.min(HEIGHT - 72, node.y));
      }
    };
    simulation.current = one;
    if (isStill) {
      one.stop().tick(STILL_TICKS);
      within();
      draw((at) => at + 1);
    } else {
      one.on("tick", () => {
        within();
        draw((at) => at + 1);
      });
    }
    return () => one.stop();
  }, [shape]);
  const at = (id) => places.current.get(id) ?? { x: WIDTH / 2, y: HEIGHT / 2 };
  const open = (one) => (one.id === chosen && one.href ? (location.hash = one.href) : onChoose(one.id));
  const key = (event, one) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open(one);
  };
  return html`<svg class="fabric" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="group" aria-label="The fabric: choose a part to see more of it">
    ${ties.map((tie) => {
      const [from, to] = [at(tie.source), at(tie.target)];
      return html`<g key=${`${tie.source}>${tie.target}`}><line class=${tie.state} x1=${from.x} y1=${from.y} x2=${to.x} y2=${to.y} />
        ${tie.label !== "" && html`<text class="quiet" x=${(from.x + to.x) / 2} y=${(from.y + to.y) / 2 - 5} text-anchor="middle">${tie.label}</text>`}</g>`;
    })}
    ${things.map((one) => {
      const { x, y } = at(one.id);
      const radius = RADII[one.kind] + (one.state === "here" ? 5 : 0);
      return html`<g key=${one.id} class=${`thing ${one.kind} ${one.state ?? ""} ${one.id === chosen ? "chosen" : ""}`} transform="translate(${x} ${y})" onClick=${() => open(one)}>
        <g class="hold" role="button" tabindex="0" aria-label=${`${one.name}, ${one.kind}: ${one.note}`} aria-pressed=${one.id === chosen} onKeyDown=${(event) => key(event, one)}>${one.kind === "node" || one.kind === "clients" ? html`<circle r=${radius} />` : html`<rect x=${-radius - 3} y=${-radius + 2} width=${2 * radius + 6} height=${2 * radius - 4} rx=${one.kind === "pipeline" ? 3 : 8} />`}</g>
        <text aria-hidden="true" y=${radius + 17} text-anchor="middle">${one.name}</text>
        <text aria-hidden="true" class="quiet" y=${radius + 31} text-anchor="middle">${one.note}</text>
      </g>`;
    })}
  </svg>`;
}
