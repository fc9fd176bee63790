"""Public runs beside our predictions: an early form of `fulcrum reproduce --public`.

Run it at the root, with target/debug/fulcrum built."""
import csv,json,re,subprocess,sys,statistics as st,collections
F='target/debug/fulcrum'
import tempfile,os
S=os.path.join(tempfile.mkdtemp(),'s.yaml')
cache={}
def q(v): return '{value: %s, source: {estimated: {reason: "the row"}}}'%v
def run(doc):
    if doc in cache: return cache[doc]
    open(S,'w').write(doc)
    p=subprocess.run([F,'plan','--json',S],capture_output=True,text=True)
    if p.returncode: r=p.stderr.strip()
    else:
        j=json.loads(p.stdout); s=j['predicted']['simulated']
        r=(num(s['ttft']),num(s['tpot']) if s.get('tpot') else None)
    cache[doc]=r; return r
def num(t):
    if isinstance(t,(int,float)): return t
    v,u=t.split(); return float(v)*{'s':1,'ms':1e-3,'us':1e-6,'ns':1e-9}[u]
def placement(r):
    fl=r['flags']
    if fl.startswith('rule:'): return '{%s}'%fl
    layers=json.load(open('scenarios/models/%s.json'%r['model']))['num_hidden_layers'] if True else 0
    t=re.findall(r'"[^"]*"|\S+',fl); o={}; ot=[]; i=0; ngl=None; rtr=False; offload=True
    while i<len(t):
        a=t[i]; v=t[i+1].strip('"') if i+1<len(t) else ''
        if a=='-ngl': ngl=int(v); i+=2; continue
        if a=='-ot': ot.append(v); i+=2; continue
        if a=='-ub': o['micro_batch']=int(v); i+=2; continue
        if a=='--n-cpu-moe': o['cpu_moe_layers']=int(v); i+=2; continue
        if a=='-cmoe': o['cpu_moe']='all'
        if a=='-rtr': rtr=True
        if a=='--no-op-offload': offload=False
        i+=1
    if ngl is None and r['gpu']: ngl=99
    if not r['gpu']: ngl=0; 
    if r['version'].startswith('2026') and ngl<=layers:
        ngl-=1; ot.append(r'^(output|token_embd)\.weight=CUDA0')
    o['gpu_layers']=ngl
    if ot and r['gpu']: o['override_tensor']=ot
    if r['engine']=='ik_llama.cpp' and (rtr or re.search(r'_R\d$',r['quant'])): offload=False
    if not offload: o['op_offload']=False
    return json.dumps(o)
def base(r):
    if not r['cpu']: return None,'no CPU named'
    if not r['model']: return None,'no model named'
    if not r['dram_bandwidth']: return None,'no DRAM speed'
    m=['cpu: '+r['cpu']]
    d=[]
    d.append('capacity: '+q(r['dram'] or '2 TB'))
    if r['dram_bandwidth']: d.append('bandwidth: '+q(r['dram_bandwidth']))
    if d: m.append('dram: {%s}'%', '.join(d))
    if r['gpu']:
        g=r['gpu']; 
        m.append('gpu: '+(g if not g.startswith('2x') else '{part: %s, count: 2}'%g[3:])); m.append('link: '+r['link'])
    kv='int8' if '-ctk q8_0' in r['flags'] else 'f16'
    return 'machine: {%s}\nmodel: %s\ndtype: {weights: %s, kv: %s}\nengine: llama.cpp\nplacement: %s\n%s'%(', '.join(m),r['model'],r['weights'],kv,placement(r),'tensor_parallel: 1\n' if r['gpu'].startswith('2x') else ''),None
def load(b,p,o): return b+'workload: {batch: 1, prompt_tokens: %d, output_tokens: %d}\n'%(p,o)
def ours(r):
    b,why=base(r)
    if why: return why
    out=int(r['output'] or 1)
    if r['metric']=='prompt_tok_s':
        p,n=int(r['past']),int(r['prompt'])
        a=run(load(b,p+n,1))
        if isinstance(a,str): return a
        t=a[0]
        if p:
            c=run(load(b,p,1))
            if isinstance(c,str): return c
            t-=c[0]
        return n/t
    past=max(1,int(r['past'] or r['prompt']))
    a=run(load(b,past,out))
    if isinstance(a,str): return a
    if r['metric']=='decode_tok_s': return 1/a[1]
    if r['metric']=='request_tok_s': return out/(a[0]+(out-1)*a[1])
    return (out-1)*a[1]
if __name__=='__main__':
    setups={r['setup']:r for r in csv.DictReader(open('scenarios/public/setups.csv'))}
    rows=[{**setups[p['setup']],**p} for p in csv.DictReader(open('scenarios/public/points.csv')) if p['id'][0]=='h' or int(p['past'])%4096==0]
    for r in rows: r['machine']='+'.join(x for x in (r['cpu'],r['gpu']) if x)
    res=[]
    for r in rows:
        o=ours(r); res.append((r,o))
        if r['id'][0]=='h' : print(r['id'],r['engine'][:5],r['machine'],r['model'],r['metric'],r['prompt'],r['past'],r['value'],o if isinstance(o,str) else '%.2f ratio %.2f'%(o,o/float(r['value'])))
    ok=[(r,o) for r,o in res if not isinstance(o,str)]
    print('unanswered',collections.Counter((r['machine'],o[:150]) for r,o in res if isinstance(o,str)))
    def group(name,key):
        g=collections.defaultdict(list)
        for r,o in ok:
            ratio=o/float(r['value'])
            if r['metric']=='decode_s': ratio=1/ratio
            g[key(r)].append(ratio)
        for k,v in sorted(g.items(),key=str):
            e=sorted(abs(x-1) for x in v); print('%-10s %-60s n=%3d median %.1f%% p90 %.1f%% ratio %.2f'%(name,k,len(v),100*st.median(e),100*e[int(.9*(len(e)-1))],st.median(v)))
    ph=lambda r:'prompt' if r['metric']=='prompt_tok_s' else 'decode'
    st_=lambda r:r['id'][:3]
    group('set',lambda r:(st_(r),ph(r)))
    group('engine',lambda r:(st_(r),r['engine'],ph(r)))
    group('machine',lambda r:(st_(r),r['machine'],ph(r)))
    group('model',lambda r:(st_(r),r['model'],ph(r)))
    group('table',lambda r:(r['id'].split('-')[1] if r['id'][0]=='s' else 'h',r['machine'],ph(r)))
