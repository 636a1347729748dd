"""A log that an earlier release has written is read, gone on with and taken out again; who reads
that earlier format alone is told by what is written from then on.

`FORMAT_1` is what the last release before entries were packed has stored: `sow log move` of a local
log with two records, then its node with two more, the second one long, and a clean stop.
"""

import asyncio
import zlib
from base64 import b85decode

import pytest

from sow.errors import StoreError
from sow.server.boot.log_move import move_in, move_out
from sow.shared_log import StoredBlock
from sow.shared_log import entry as chain_module
from sow.shared_log.entry import EntryKind, LogChain, decode
from tests.server.boot.log_nodes import Client, Node, node_configuration
from tests.server.boot.servers import records
from tests.server.boot.test_log_move import published
from tests.shared_log.files import FileLog

pytestmark = [pytest.mark.edge, pytest.mark.usefixtures("steady")]

LONG = b'{"id":5,"text":"%s"}' % (b"x" * 1500)


async def blocks_of(shared):
    blocks = []
    async for stored in shared.read(0):
        blocks.append(StoredBlock(*stored))
        if stored.position == shared.newest:
            break
    return blocks


def formats(blocks):
    return [(decode(one.block)[0].kind, decode(one.block)[0].format) for one in blocks]


async def gone_on(config, shared):
    """What a node has that has stored a long record of its own."""
    node = Node(config, shared)
    try:
        await node.start()
        await node.until(lambda: not node.follows and len(records(node.server)) == 4)
        server = node.server
        server.engine.publish("orders", [LONG], server.runtime.now_us())
        await server.runtime.durable()
        newest = server.engine.seq
        await node.until(lambda: node.member._keeper.kept.bookmark == newest)
        return records(server)
    finally:
        await node.end()


def test_a_log_of_the_format_before_is_gone_on_with_and_taken_out(tmp_path):
    (tmp_path / "log").write_bytes(zlib.decompress(b85decode(FORMAT_1.replace("\n", ""))))

    async def play():
        shared = FileLog(tmp_path / "log")
        config, opened = node_configuration("b", tmp_path), lambda _: Client(shared)
        before = await blocks_of(shared)
        assert {found for _, found in formats(before)} == {1}
        assert EntryKind.BACKUP in dict(formats(before))
        # An empty directory: all that it has it has read in the log.
        assert await gone_on(config, shared) == ["1", "2", "3", "4", "5"]
        blocks = await blocks_of(shared)
        assert blocks[: len(before)] == before
        assert (EntryKind.RECORDS, 2) in formats(blocks[len(before) :])
        assert await move_out(config, opened) == 5
        assert (await published(config, 6))[0] == ["1", "2", "3", "4", "5", "6"]
        shared.close()
        # And into a log of its own, which the earlier release could not read.
        shared = FileLog(tmp_path / "another")
        assert await move_in(config, lambda _: Client(shared)) == 6
        assert 2 in dict.fromkeys(found for _, found in formats(await blocks_of(shared)))
        shared.close()

    asyncio.run(play())


def test_a_node_of_the_format_before_is_told_at_the_first_lead_of_a_later_one(
    tmp_path, monkeypatch
):
    (tmp_path / "log").write_bytes(zlib.decompress(b85decode(FORMAT_1.replace("\n", ""))))

    async def play():
        shared = FileLog(tmp_path / "log")
        count = len(await blocks_of(shared))
        await gone_on(node_configuration("b", tmp_path), shared)
        blocks = await blocks_of(shared)
        shared.close()
        return blocks, count

    blocks, count = asyncio.run(play())
    monkeypatch.setattr(chain_module, "ENTRY_FORMAT", 1)
    chain = LogChain()
    for position, block in blocks[:count]:
        chain.take(position, block)
    said = f"format 2 at position {count + 1}, written by node b; this release reads format 1"
    with pytest.raises(StoreError, match=said):
        chain.take(*blocks[count])


FORMAT_1 = """
c-rk*4Qv$06+R!fLB<KRq0mGr94mul{C7XTvrUX~jBUU+w#i+LYiu8TyL0EY_vgGn#~tT0M6Mw}A}LLpL`kajC#ouf5{PKik
P=mGqqIq@sEOJ@8?|afpeiwml2lD<NA3LVp7;I)txR;PJObPE-kUeyym{}<n;nY<w*vU@thZ-RS3!ZrXa$yHdg{dOtG{4LYx
f4%mVNle?;Z^Vs($O-`bKH%+sg9z6>hA&`{bRs-tS%thmOZ7QDOnLnWCvmie_0EC<^S2sA_m~O${RQfL4HCgH(sxj#?!Z<ir
q=!!jqTP!<Gfx2u+M0XOXo0N{dSf|4xIkmrEIr4W>HyW9cR&eXEb29J{oI-v|Bi9s%;$+XHzA{1fD;vUC(SG2a%<&W*&!FGD
v?(|f&?v63d5uc+k;^P}z$|?pXC+b_6f&S3Oy3s~0x~-#cL!G}l+;j)aN0gnL+Jp{AU%zuts7e$!RA?PBcI)<l*yCvm^Wz7!
Xxr{6yQOdRtBDw+sbE*5z{Z@dy=+grSQg>DTQqMs(<E%{8)X8$y-`lmTFS@ieacR^J>=cDy{DnQseut|8@DUk0JCxZ#Ll=7Z
wIXFHc$O_VMo8(?{)<ea;(`UxI5Z*N7}@FUA>)sWi7RGqtrI6i7LZU34L#@7RxRDcq5C`H*)%WWiyYz^RjPqeCjuqd)_O2d9
KrQVcoI|FOCeada!8ahF`z3^5_GvzVu-G<V&A+c6~Pe!4;^hG+?o;I4;CXY*Ylu3O1?DSqZx#AOge4HV2}NN}4RvJnSa_L}X
P8a}3;O+ujnJ4JxwPD3KNb5|d;WDn(L|802^pv3gXI#A-#_uX6?HKy(QB)mRuyA-2JiSPc&qHJ&$g0iN|MAWTDulAOuIc!mf
83aRG)7>F5gVXuZ`DfHJo)6Yr*&7oyel%YXYfh?v>BLkHPsj>zL2}Hvj3<O9E(!8P*6;5OTggOq%c1TH7W|*l4nxTe~1c6i2
jRiSXIwvoTwO{6-CCFT`i}!xv%{NcGR_kG0*^EaR`DD91uoldriY8=+Ch<0%mlrm}u=622!&-pnl#%Q<n`h>Q(HNcs@QBR|N
8>d?%<g8GlNa_PS<J|3cywO)94?`<8ILgX!gk{t&_L350U<98M{6vnX0aQl=Y`qAJk5YSsXI*dbdCeTB#<Acf+hs6$4UCXxE
hnoZaQbt-BR6c1ggvGW|)zO=Yaq|e`hPfQ&Ax<0z|(ShU7RhC|r01k0m{1SOYi4o^s(rFiLdHgqwNK$RT5{rgN%EDIs%6rB_
Wkm6^(f95Uv^Fo%dK?dL|Fk?e9QW3Db^c4k9F-#U1API?&nnBj-lOz13`A2c94076iWpAMqy0rUVwV@3co1}%&(-wvnKZFe=
e>q^jPfTaxCW%%d*fVXFl<4@iHToHl2Ld&(cIJJv}moFu{Y*Z(RA=vm@JVg4fNmtk13!%7yF?$mv+=sEe;9EO+?}B47Zk@^4
%s`gn+6Z4MWAbF!KZN1cJ^aIxgVzgQc2IgOAxtZn)X;&XyD+RZ*5k~f1&4+6ZZ1n1(Ti}cWYU5a(!Pd){p7EuQ&S5LOuwIGh
h|C{DSn1C1o}FOf!#78F!wAtFg@`nF9ErXN3xa4%}8>B{lggDj&sKjOfNV(z0@XUc6Mlbl0?XsGxIqSb|*2gxvej>B^DeQsV
=f3A~_k&xr)h>f+78GjO<9@51mIAJ_Jaim@^2>hk?o4^xU6J8~4n<VLkZynvIzUrTZ8;Y?2XB@l?l|>lp!h*^|R`<lsZ-3V8
UV3PU>dP<Tlt`AB`WMh1N8@VhUf0Yz7pw<hp_)2+{bW5Sv_z<AZzG~Re(iY|tPn=Az;ev+;?WBf85Y8HP$!yScIWHjB2(6fZ
1!qSo2jO#fnBmu>bzK@eqj#5DsJ#54WDNY%Lwi=|inN<!#yAI-_jWFS{pb{GSgpR0tO@n=inm&je!GvnAkO>#<C*h%z7AqV?
NBJN%lo&$fuq3O4xW+)z<SRbvo2Km`R4-6fP7Fa}0?ER(f?fxdG+{3xrwQ{MI)~FlyL6(ij?v)37|T#+kaa0J0%SidpVD<np
|mN363<Kfft)7Tu9MSOGeXON&7#<g8L8?M*v}>GfIoWn(r2Q{;nIH(eY{0?v|>!lq^Gu0{WsaxWjIDrrRbQS@*k_FKQN|5(_
7P~JgzjQOli%aU)z*U<Be$v{C__C8`I&=A2e6}{g1P!&)$5-yMEJ=H*dE1OL}7Ezgidh@~7HZ*PlOHQ+N5B&Bvd9tYh0`<oB
KB190q7fU-P@C!hChj!N@$6J@V<RNGO~2}shIK+9u@=tKmGXJL?F8PrudfjlYN9CZyIyQkjnsIRYeIy}xw8+kFzR$)WEyabD
BG|XcxvM|ewsMT2H$l#^EBdagYUAb_|f5XhupVwQR_U7|*Kl{$``H_=a{M6!$X#Tv2qEvncZ{(7+jf@UI?|SPO=Pc8ogld;R
Vx4>RnTO6by>2^Eak=A(wI^5oW$j&ST7Uf1qoqY}-w}E2Sj#J?Z$zi7h+=MJr{g1Ym@i3-x%oz7&fq^k9R06i&Xq{2u@rwh`
zl_W_}2RAO>aK_+{I(7*G&a%^uO<GdZ(eRsLwS$^RfNLPc979&y4Om5c=tC_gkaCd)ISWgSvcZ6_+0V`d56#^Qa52vI>Jg@m
ls(d{|^&#g!ss6}8EuFS^(k+hSX6i|zleB~M&f?pV6;SyhyFR>i7)f7?6z<jV4+v(x{2|MlC}&`++Ix%Jd9XY2=iiUY@b554
Dm^&)rs`S;H@ckjAeyZ`%<FdF<H@+DqP
"""
