"""A model with every kind of sensor, and the elements that they need."""

from __future__ import annotations

FRAMES = ("body", "xbody", "geom", "site", "camera")
OBJECTS = {"body": "foot", "xbody": "foot", "geom": "sole", "site": "toe", "camera": "eye"}
REFERENCES = {"body": "trunk", "xbody": "trunk", "geom": "post", "site": "back", "camera": "over"}


def of_frames() -> str:
    """Each sensor of a frame: of every kind of object, in the frame of every kind and of none."""
    out = ""
    for sensor in ("pos", "quat", "xaxis", "yaxis", "zaxis", "linvel", "angvel"):
        for k, kind in enumerate(FRAMES):
            for ref in (None, FRAMES[k - 1]):
                relative = f'reftype="{ref}" refname="{REFERENCES[ref]}"' if ref else ""
                out += f'<frame{sensor} objtype="{kind}" objname="{OBJECTS[kind]}" {relative}/>'
    for sensor in ("linacc", "angacc"):
        out += "".join(f'<frame{sensor} objtype="{kind}" objname="{OBJECTS[kind]}"/>' for kind in FRAMES)
        out += f'<frame{sensor} objtype="geom" objname="post"/>'
    return out


MODEL = """<mujoco><compiler angle="radian" autolimits="true"/>
  <option timestep="0.004" integrator="{integrator}" magnetic="1 -.5 .2" gravity="0.3 0 -9.81"/>
  <worldbody><site name="ground" type="box" size=".3 .3 .1"/><geom name="floor" type="plane" size="5 5 1"/>
    <site name="ball" size=".3" pos=".1 0 .2"/><site name="drum" type="cylinder" size=".3 .15" pos="0 0 .3"/>
    <body name="bare" pos=".35 0 .2"><body><joint axis="0 1 0"/><geom size=".05" pos=".1 0 0" contype="0"
      conaffinity="0"/></body></body>
    <body name="stand" pos="2 0 0"><geom name="post" type="capsule" size=".1 .3" euler=".1 .2 .3"/><site name="fixed"/>
      <body name="flag" pos="0 0 1"><joint name="pole" axis="0 0 1" pos=".1 0 0" damping=".1"/>
        <geom size=".05 .2" type="capsule" euler="1 0 0"/><site name="tip" pos="0 .1 .2" euler="2.8 .5 0"/></body>
    </body>
    <body name="trunk" pos="0 0 .42"><freejoint name="root"/>
      <geom type="capsule" size=".1 .2" euler="0 1.2 0"/><site name="belly" type="ellipsoid" size=".3 .2 .15"/>
      <site name="trunk end" type="capsule" size=".12 .1" pos=".2 0 -.05"/>
      <site name="back" pos=".1 .05 .1" euler=".4 -.2 1"/>
      <camera name="over" pos="0 -.1 .3" euler=".3 .2 .1" resolution="64 40" fovy="60"/>
      <body name="leg" pos=".1 .1 -.1" euler="0 .2 0"><joint name="hip" type="ball" damping=".2" stiffness="2 1 .5"/>
        <geom type="capsule" fromto="0 0 0 0 .1 -.25" size=".04"/>
        <site name="thigh" pos="0 0 -.1" euler="1 2 3"/>
        <body name="foot" pos="0 .1 -.25"><joint name="knee" axis="0 1 0" range="-.2 .3" armature=".01"/>
          <joint name="slide" type="slide" axis="0 0 1" range="-.01 .02" margin=".02" stiffness="300" damping="3"/>
          <geom name="sole" size=".06" pos=".05 0 -.05" quat="1 .2 .3 .4"/>
          <site name="under" pos=".05 0 -.1" size=".05"/>
          <site name="shell" type="box" pos=".1 0 -.05" size=".06 .03 .1"/>
          <site name="shin" type="cylinder" size=".04 .1" pos=".05 0 -.02"/>
          <site name="toe" pos=".1 0 -.1" euler="1 0 .4"/>
          <camera name="eye" pos=".1 .02 0" euler=".2 -1 2" resolution="99 20" sensorsize=".01 .02" focal=".02 .03"/>
          <body pos=".1 0 0"><geom type="box" size=".02 .03 .01" contype="0" conaffinity="0" quat="1 2 3 4"/></body>
        </body></body></body>
  </worldbody>
  <tendon><fixed name="cord"><joint joint="knee" coef="2"/><joint joint="pole" coef="-1"/></fixed>
    <spatial name="rope" stiffness="3 2" springlength=".2 1.5"><site site="fixed"/><site site="toe"/></spatial></tendon>
  <actuator><motor name="push" joint="knee" gear="-3" ctrlrange="-1 1" forcerange="-.5 .5"/>
    <motor name="lift" joint="slide" gear="20"/><motor name="reel" tendon="rope" gear=".1"/></actuator>
  <sensor><jointpos joint="knee"/><jointvel joint="slide" cutoff=".1"/><ballquat joint="hip"/><ballangvel joint="hip"/>
    <tendonpos tendon="cord"/><tendonvel tendon="cord"/><tendonpos tendon="rope"/><tendonvel tendon="rope"/>
    <actuatorpos actuator="push"/><actuatorvel actuator="push"/><actuatorfrc actuator="push"/>
    <tendonactuatorfrc tendon="rope"/><actuatorpos actuator="reel"/>
    <jointactuatorfrc joint="slide" cutoff="15"/>
    <jointlimitpos joint="knee"/><jointlimitvel joint="knee"/><jointlimitfrc name="limit" joint="knee"/>
    <jointlimitpos joint="slide"/><jointlimitvel joint="slide"/><jointlimitfrc joint="slide" cutoff="200"/>
    <gyro name="gyro" site="toe"/><velocimeter site="toe"/><magnetometer site="toe"/><gyro site="fixed"/>
    <accelerometer name="imu" site="back"/><accelerometer site="thigh" cutoff="9"/><accelerometer site="fixed"/>
    <force site="thigh"/><torque site="thigh"/><force site="toe"/><torque site="toe"/><force site="tip"/>
    <torque site="tip"/><force site="back"/><torque site="back"/><torque site="fixed"/>
    <subtreecom body="trunk"/><subtreelinvel body="leg"/><subtreeangmom body="leg"/><subtreeangmom body="stand"/>
    <subtreecom body="world"/><subtreelinvel body="world"/><subtreeangmom body="trunk"/>
    <rangefinder site="back"/><rangefinder site="thigh" cutoff="1"/><rangefinder site="toe"/><rangefinder site="fixed"/>
    <rangefinder site="thigh" data="dist dir origin point depth"/><rangefinder site="toe" data="point" cutoff=".5"/>
    <rangefinder site="back" data="dir"/>
    <touch name="sole" site="under"/><touch name="side" site="shell"/><touch site="belly"/><touch site="trunk end"/>
    <touch name="ground" site="ground"/><touch name="shin" site="shin"/>
    <contact geom1="floor" num="2" data="found force torque dist pos normal tangent linvel angvel"/>
    <contact subtree1="leg" reduce="netforce" data="found force torque dist pos normal tangent"/>
    <contact site="ground" body2="foot" reduce="maxforce" data="force pos"/>
    <camprojection site="toe" camera="over"/><camprojection site="back" camera="eye"/>
    <e_potential/><e_kinetic/>
    <insidesite site="ball" objtype="site" objname="toe"/><insidesite site="ball" objtype="body" objname="foot"/>
    <insidesite site="ball" objtype="body" objname="bare"/><insidesite site="drum" objtype="xbody" objname="leg"/>
    <insidesite site="ground" objtype="geom" objname="sole"/><insidesite site="belly" objtype="site" objname="thigh"/>
    <insidesite site="drum" objtype="camera" objname="eye"/>
    {frames}</sensor></mujoco>"""
