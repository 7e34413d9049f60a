// What peer.py is to the peers in Python.
import fs from 'node:fs'

export const DSN = process.env.PEERS_DSN
export const BEST = process.env.PEERS_MODE === 'best'
export const CRON = Number(process.env.PEERS_CRON ?? 0)
export const CRON_BASE = 20_000_000
const SLOW = 10_000_000
const SLOW_SECONDS = 10
const BATCH = 1_000
const LOAD_BATCH = 250
const LOAD_MOST = 2_000
const RECORD = 16

const now = () => (performance.timeOrigin + performance.now()) / 1000
const sleep = seconds => new Promise(resolve => setTimeout(resolve, seconds * 1000))
const range = (start, count) => Array.from({ length: count }, (_, i) => start + i)
export const when = at => at === undefined ? undefined : new Date(at * 1000)

let events
function record (n) {
  events ??= fs.openSync(process.env.PEERS_EVENTS, 'a')
  const bytes = Buffer.alloc(RECORD)
  bytes.writeBigInt64LE(BigInt(n), 0)
  bytes.writeDoubleLE(now(), 8)
  fs.writeSync(events, bytes)
}

function started () {
  try {
    return fs.statSync(process.env.PEERS_EVENTS).size / RECORD
  } catch {
    return 0
  }
}

export async function handle (n) {
  record(n)
  if (n >= SLOW && n < CRON_BASE) {
    await sleep(SLOW_SECONDS)
    record(-n)
  }
}

async function enqueue (peer, how, count, start, at) {
  const begin = now()
  if (how === 'single') {
    for (const n of range(start, count)) await peer.one(n, at)
  } else {
    for (let i = 0; i < count; i += BATCH) {
      await peer.many(range(start + i, Math.min(BATCH, count - i)), at)
    }
  }
  return now() - begin
}

async function latency (peer, count, gap) {
  const sent = []
  let following = now() + 0.5
  for (const n of range(0, count)) {
    await sleep(Math.max(0, following - now()))
    following += gap
    await peer.one(n)
    sent.push(now())
  }
  return sent
}

async function load (peer, seconds) {
  const end = now() + seconds
  let sent = 0
  while (now() < end) {
    if (sent - started() > LOAD_MOST) {
      await sleep(0.01)
      continue
    }
    await peer.many(range(sent, LOAD_BATCH))
    sent += LOAD_BATCH
  }
  return null
}

export async function main (peer) {
  const [command, ...words] = process.argv.slice(2)
  if (command === 'work') return await peer.work()
  let said = null
  if (command === 'setup') {
    await peer.setup()
  } else {
    await peer.open()
    if (command === 'enqueue') said = await enqueue(peer, words[0], ...words.slice(1).map(Number))
    else if (command === 'latency') said = await latency(peer, ...words.map(Number))
    else if (command === 'load') said = await load(peer, Number(words[1]))
    else throw new Error(`no such command: ${command}`)
    await peer.close()
  }
  console.log(JSON.stringify(said))
  process.exit(0)
}
