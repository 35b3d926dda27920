// The last minutes of the whole ledger, with uPlot. It follows the colours of the page.

import uPlot from "../vendor/uplot.js";
import { html, useEffect, useRef } from "./html.js";
import { short } from "./format.js";

const SAMPLE_S = 5;
const HEIGHT = 170;

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(width) {
  const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width,
    height: HEIGHT,
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { live: false },
    scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(high, 1)] }, waiting: { range: (_, low, high) => [0, Math.max(high, 1)] } },
    axes: [{ ...axis, space: 90, values: (_, at) => at.map((one) => new Date(one * 1000).toLocaleTimeString("en-GB")) }, { ...axis, size: 48, values: (_, at) => at.map(short) }, { ...axis, side: 1, scale: "waiting", size: 48, grid: { show: false }, values: (_, at) => at.map(short) }],
    series: [
      {},
      { label: "ended per second", stroke: css("--accepted-fill"), width: 1.8, fill: `${css("--accepted-fill")}1f`, points: { show: false } },
      { label: "in flight (right)", scale: "waiting", stroke: css("--flight-fill"), width: 1.5, points: { show: false } },
    ],
  };
}

export function Plot({ trend, waiting }) {
  const place = useRef();
  const plot = useRef();
  const end = Math.round(Date.now() / 1000);
  const size = Math.min(trend.length, waiting.length);
  const data = [Array.from({ length: size }, (_, at) => end - (size - 1 - at) * SAMPLE_S), trend.slice(-size), waiting.slice(-size)];
  const key = data[1].join() + data[2].join();
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(place.current.clientWidth), data, place.current);
    };
    make();
    const watch = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    watch.observe(place.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    return () => {
      watch.disconnect();
      dark.removeEventListener("change", make);
      plot.current.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [key]);
  const text = `Over the last ${Math.round((size * SAMPLE_S) / 60)} minutes: ${short(trend.at(-1) ?? 0)} events ended per second now, ${short(waiting.at(-1) ?? 0)} in flight`;
  return html`<div ref=${place} role="img" aria-label=${text}></div>`;
}
